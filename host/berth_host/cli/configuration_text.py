"""The text of a configuration file that a command names, with its errors as ConfigurationError."""

from __future__ import annotations

import sys
from typing import Final

import click
from berth_sdk.yaml.encoding import text_of

from berth_host.config.errors import ConfigurationError, Finding

MAX_BYTES: Final = 16 * 2**20
"""The largest file that is read. A configuration has a few kilobytes, and a ConfigMap 1 MiB at most."""


def read_text(file: str, source: str) -> str:
    """Return the text of a file (-: standard input) as it is. `source`: its name in errors.

    Raises ConfigurationError for a file that cannot be read, is larger than MAX_BYTES, or is not UTF-8.
    """
    if file == "-" and sys.stdin is None:
        raise _unreadable("cannot be read: it is closed", source)
    try:
        with click.open_file(file, "rb") as opened:
            data: bytes = opened.read(MAX_BYTES + 1)
    except OSError as err:
        raise _unreadable(f"cannot be read: {err.strerror}", source) from err
    if len(data) > MAX_BYTES:
        message = f"is larger than {MAX_BYTES // 2**20} MiB, so it is no configuration: name another file"
        raise _unreadable(message, source)
    try:
        return text_of(data)
    except UnicodeDecodeError as err:
        line = data.count(b"\n", 0, err.start) + 1
        finding = Finding(f"not UTF-8: byte 0x{data[err.start]:02x}", line=line)
        raise ConfigurationError("decode", [finding], source=source) from err


def _unreadable(problem: str, source: str) -> ConfigurationError:
    return ConfigurationError("decode", [Finding(problem)], source=source)
