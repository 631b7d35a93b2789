"""promtool and prometheus, from the PATH or from the folder that `make envtest` brings them into."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def program(name: str) -> Path | None:
    """Return the path of `promtool` or `prometheus`; None where it is not."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = f"{os.environ['PATH']}{os.pathsep}{Path(caches) / 'berth/promtool'}"
    found = shutil.which(name, path=path)
    return Path(found) if found else None
