"""Functions for paths that users write, with `~` and with names that no file can have."""

from __future__ import annotations

from pathlib import Path


def expanded(text: str) -> Path:
    """Return the path with `~` replaced by the home directory; unchanged if that directory is unknown."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def why_unread(err: OSError | ValueError) -> str:
    """Return why a file cannot be read; a ValueError means a name with a NUL."""
    return err.strerror if isinstance(err, OSError) and err.strerror else str(err)


def is_file(path: Path) -> bool:
    """Return True for an existing file; False also for a name that is too long or contains a NUL."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
