"""Make the pictures of docs/gallery.md by running the code on that page."""

from __future__ import annotations

import re
import tempfile
from contextlib import chdir
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
PAGE, FIGURES = ROOT / "docs" / "gallery.md", ROOT / "docs" / "figures" / "gallery"
WIDEST, COLOURS, LARGEST = 720, 256, 60_000  # pixels, colours, bytes


def main() -> None:
    """Run the page's blocks in an empty folder, and put what they draw among the figures."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        exec(compile(code, str(PAGE), "exec"), {"__name__": "__main__"})
        for path in sorted(Path().glob("*.png")):
            image = Image.open(path).convert("RGB")
            image.thumbnail((WIDEST, 4 * WIDEST))
            image.quantize(COLOURS, dither=Image.Dither.NONE).save(FIGURES / path.name, optimize=True)
            size = (FIGURES / path.name).stat().st_size
            print(f"{path.name:16} {size:,} bytes")
            if size > LARGEST:
                raise SystemExit(f"{path.name} has {size:,} bytes, more than {LARGEST:,}: draw less")


if __name__ == "__main__":
    main()
