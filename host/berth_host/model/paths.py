"""Paths as users write them: `~`, and names that no file can have."""

from __future__ import annotations

from pathlib import Path


def expanded(text: str) -> Path:
    """Return the path with the home directory for its `~`; as written where that directory is not known."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def why_unread(err: OSError | ValueError) -> str:
    """Return the reason of a file that cannot be read; a ValueError is about a name with a NUL."""
    return err.strerror if isinstance(err, OSError) and err.strerror else str(err)


def is_file(path: Path) -> bool:
    """Return True for an existing file; False also for a name that is too long, or holds a NUL."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
