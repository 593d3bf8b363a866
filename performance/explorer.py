"""The explorer over a made store, in a browser: first view, filters, scrolling, the map, and the server's memory."""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from ig2.runs.files import FORMAT, MANIFEST, PARTS, arrow, write_json, write_part
from performance.store import Row, table

SIDE = 14
ROWS_IN_PART = 20_000
SCREENS = 40  # that are scrolled through
SPEED = 2500  # pixels a second: thirty rows
# a list is whole when every row in sight has its map
WHOLE = """
const whole = () => {
  const box = document.getElementById("list").getBoundingClientRect();
  const rows = [...document.querySelectorAll(".row")].filter((row) => {
    const { top, bottom } = row.getBoundingClientRect();
    return bottom > box.top && top < box.bottom;
  });
  return rows.length > 0 && rows.every((row) => "filled" in row.dataset);
};
const frame = () => new Promise(requestAnimationFrame);
const until = async (test) => { while (!test()) await frame(); return performance.now(); };
"""
FIRST = f"async () => {{ {WHOLE} return until(whole); }}"
CHOOSE = f"""async (changes) => {{ {WHOLE}
  const from = performance.now();
  choose(changes);
  const wanted = String(question());
  await until(() => document.body.dataset.ready === wanted && whole());
  return performance.now() - from;
}}"""
SCROLL = f"""async ([screens, speed]) => {{ {WHOLE}
  const list = document.getElementById("list");
  const [from, start, far] = [performance.now(), list.scrollTop, screens * list.clientHeight];
  let [frames, gaps, since, longest] = [0, 0, null, 0];
  for (let gone = 0; gone < far; ) {{
    const now = await frame();
    gone = Math.min(far, ((performance.now() - from) / 1000) * speed);
    list.scrollTop = start + gone;
    await frame();
    frames += 1;
    if (whole()) since = null;
    else {{
      gaps += 1;
      since ??= performance.now();
      longest = Math.max(longest, performance.now() - since);
    }}
  }}
  return {{ frames, gaps, longest, seconds: (performance.now() - from) / 1000 }};
}}"""
MAP = """async () => {
  const from = performance.now();
  chooseView("map");
  while (!document.getElementById("cloud").dataset.drawn) await new Promise(requestAnimationFrame);
  return performance.now() - from;
}"""


def make_store(folder: Path, count: int) -> Path:
    """Write a store of made maps, of four kinds, with labels and everything that a run keeps."""
    pyarrow, numbers = arrow(), np.random.default_rng(0)
    (folder / PARTS).mkdir(parents=True)
    fingerprint = {"method": {"name": "made"}, "model": {"name": "none"}, "settings": {}, "source": {}}
    classes = [f"class {i}" for i in range(10)]
    about = {"format": FORMAT, "fingerprint": fingerprint, "digest": "made", "kind": "image", "classes": classes}
    write_json(folder / MANIFEST, about)
    for first in range(0, count, ROWS_IN_PART):
        rows = min(ROWS_IN_PART, count - first)
        values = numbers.normal(size=(rows, SIDE, SIDE)) * 0.1
        corners = numbers.integers(0, 4, rows)
        for corner in range(4):
            down, across = divmod(corner, 2)
            values[corners == corner, 7 * down : 7 * down + 5, 7 * across : 7 * across + 5] += 1
        labels = numbers.integers(0, 10, rows)
        predictions = np.where(numbers.random(rows) < 0.9, labels, numbers.integers(0, 10, rows))
        columns: dict[str, Any] = {
            "id": [f"folder/image-{first + i:07d}.png" for i in range(rows)],
            "error": pyarrow.array([None] * rows, "string"),
            "label": labels,
            "prediction": predictions,
            "target": predictions,
            "output": numbers.normal(size=rows),
            "relative_residual": numbers.exponential(0.02, rows),
            "trust": numbers.beta(6, 2, rows),
            "insertion": numbers.beta(3, 2, rows),
            "values": pyarrow.FixedShapeTensorArray.from_numpy_ndarray(values.astype(np.float32)),
        }
        name = f"part-{first:08d}-{first:08d}.parquet"
        write_part(folder / PARTS / name, pyarrow.table(columns))
    return folder


def read_memory(process: int) -> tuple[int, int]:
    """Return the memory of a process now and at its peak, in MiB."""
    status = Path(f"/proc/{process}/status").read_text()
    return tuple(int(re.search(rf"{name}:\s+(\d+)", status)[1]) // 1024 for name in ("VmRSS", "VmHWM"))  # type: ignore[index, return-value]


def run(quick: bool) -> list[Row]:
    from playwright.sync_api import sync_playwright

    count = 5000 if quick else 100_000
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    executable = next(filter(None, map(shutil.which, names)), None)
    rows: list[Row] = []

    def note(what: str, number: float, unit: str) -> None:
        rows.append({"what": what, "items": count, "number": round(number, 3), "unit": unit})

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        store = make_store(Path(folder) / "store", count)
        command = [sys.executable, "-m", "ig2", "serve", str(store), "--no-open", "--port", "0"]
        started = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            address = server.stdout.readline().split()[-1]
            note("start of the command", time.perf_counter() - started, "s")
            note("memory after the start", read_memory(server.pid)[0], "MiB")
            browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
            try:
                firsts = []
                for _ in range(3):  # the first of a new server, then of others
                    page = browser.new_page(viewport={"width": 1400, "height": 900})
                    page.goto(address, wait_until="commit")
                    firsts.append(page.evaluate(FIRST) / 1000)
                note("first view, of a new server", firsts[0], "s")
                note("first view, later", statistics.median(firsts[1:]), "s")
                filters = [
                    {"where": "trust < 0.5 and prediction != label"},
                    {"where": "output > 1"},
                    {"where": "", "text": "00042"},
                ]
                filters += [{"text": "", "ranges": "trust:0.2:0.4"}, {"ranges": "", "cell": '["class 1","class 1"]'}]
                for changes in [*filters, {"cell": ""}]:
                    note(f"filter {changes}", page.evaluate(CHOOSE, changes) / 1000, "s")
                for sort in ("output", "-trust"):
                    note(f"sorted by {sort}", page.evaluate(CHOOSE, {"sort": sort}) / 1000, "s")
                page.evaluate(CHOOSE, {"sort": ""})
                for sort in ("", "-output"):
                    page.evaluate(CHOOSE, {"sort": sort})
                    result = page.evaluate(SCROLL, [SCREENS, SPEED])
                    words = f"scrolling {SCREENS} screens, {f'sorted by {sort}' if sort else 'in order'}"
                    note(f"{words}: frames with a gap", result["gaps"] / result["frames"], "of 1")
                    note(f"{words}: longest gap", result["longest"] / 1000, "s")
                    note(f"{words}: frames a second", result["frames"] / result["seconds"], "1/s")
                note("the map, made", page.evaluate(MAP) / 1000, "s")
                page.evaluate("chooseView('list')")
                note("filter by a cluster", page.evaluate(CHOOSE, {"sort": "", "cluster": "1"}) / 1000, "s")
                for name, size in zip(("memory at the end", "memory at its peak"), read_memory(server.pid), strict=True):
                    note(name, size, "MiB")
            finally:
                browser.close()
                server.terminate()
    print(table(rows, f"the explorer over {count:,} items of {SIDE} × {SIDE} values, in a browser"))
    return rows
