"""Standard input as text: manifests of `-f -`, a configuration of `--config -`."""

from __future__ import annotations

import errno
import sys
from typing import Final

from berth_sdk.yaml.encoding import text_of

SIGN: Final = "-"
"""A path that means standard input."""
NAME: Final = "standard input"


def read_text() -> str:
    """Return all of standard input. Raises OSError, also if it is closed, and UnicodeDecodeError."""
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    # The bytes, as the locale may decode text by another encoding than UTF-8.
    return text_of(sys.stdin.buffer.read())
