"""Write requirements.lock: each package that `make` installs, with the checksums of all files of that version.

    python tools/lock.py            # the versions that stand there, with the checksums the index has now
    python tools/lock.py --frozen   # the versions installed in .venv, for after an update

All platforms' files are listed, so the lock serves any of them. torch is not in it: which of its builds fits depends on the
machine, and so does what that one needs; the Makefile names its version.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

INDEX = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple")
LOCK = Path(__file__).parent.parent / "requirements.lock"
HEADER = """\
# What `make` installs, written by tools/lock.py. `pip install ig2` itself takes any version that pyproject.toml allows.
"""
PIN = re.compile(r"^([\w.-]+)==([^\s;\\]+)(?:\s*;\s*([^\\]+?))?\s*\\?$")
NOT_LOCKED = ("pip", "ig2", "torch")


def main() -> None:
    """Write the lock."""
    pins = read(LOCK.read_text(encoding="utf-8"))
    if "--frozen" in sys.argv:
        frozen = subprocess.run([".venv/bin/pip", "freeze", "--all"], check=True, capture_output=True, text=True).stdout
        elsewhere = {name: pin for name, pin in pins.items() if pin[1]}  # for other platforms than this one
        pins = {name: pin for name, pin in read(frozen).items() if name not in NOT_LOCKED} | elsewhere
    lines = [HEADER]
    for name, (version, marker) in sorted(pins.items()):
        digests = on_index(name, version)
        if not digests:
            raise SystemExit(f"the index has no files of {name} {version}")
        condition = f" ; {marker}" if marker else ""
        listed = " \\\n".join(f"    --hash=sha256:{digest}" for digest in sorted(digests))
        lines.append(f"{name}=={version}{condition} \\\n{listed}\n")
    LOCK.write_text("".join(lines), encoding="utf-8")


def read(text: str) -> dict[str, tuple[str, str]]:
    """The pinned version and marker of each package."""
    pins = (PIN.match(line) for line in text.splitlines())
    return {re.sub(r"[-_.]+", "-", pin[1]).lower(): (pin[2], pin[3] or "") for pin in pins if pin}


def on_index(name: str, version: str) -> list[str]:
    """The checksums of all files of a version."""
    with urllib.request.urlopen(f"{INDEX}/{name}/", timeout=60) as answer:
        page = html.unescape(answer.read().decode())
    files = re.findall(r'href="[^"]*/([^"/#]+)#sha256=([0-9a-f]{64})"', page)
    # in names of files a package has any of - _ . between its words
    start = re.compile(re.sub("-", "[-_.]", name) + "-" + re.escape(version) + r"(-|\.tar\.gz$|\.zip$)", re.IGNORECASE)
    return [digest for file, digest in files if start.match(file)]


if __name__ == "__main__":
    main()
