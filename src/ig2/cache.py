"""Where things are kept that can be made or fetched again: trained networks, public data."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """$IG2_CACHE, or the folder for such things on this system."""
    if chosen := os.environ.get("IG2_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "ig2"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ig2"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ig2"
