"""The command that serves the explorer."""

from __future__ import annotations

import subprocess
import sys
import urllib.request

import pytest

from stores import tiny


def test_without_a_store_it_says_what_to_name(ig2):
    assert "ig2 serve ig2-run" in ig2.refused("serve", code=2)
    assert "no store" in ig2.refused("serve", ".")


def test_a_source_without_images_is_refused(ig2):
    tiny(ig2.folder / "store", ["x"], [1.0])
    (ig2.folder / "rows.csv").write_text("a\n1\n", encoding="utf-8")
    assert "--source" in ig2.refused("serve", "store", "--source", "rows.csv")


@pytest.mark.slow
def test_it_prints_where_it_is_answers_and_ends_when_told(tmp_path):
    tiny(tmp_path / "store", ["x"], [1.0])
    command = [sys.executable, "-m", "ig2", "serve", "store", "--no-open", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        try:
            with urllib.request.urlopen(address + "api/stores", timeout=20) as answer:
                assert b'"items":1' in answer.read()
        finally:
            process.terminate()
        assert process.wait(20) == 143
