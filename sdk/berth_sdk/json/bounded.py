"""`read_bounded_json`: JSON as a Python value, up to the same depth in every version of Python.

The depth at which `json` gives up depends on the version: about 1000 levels in 3.11, ten times as many in
3.13. A value that 3.13 reads is then too deep for the code that walks over it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from berth_sdk.json.scanner import opens_more_than

MAX_DEPTH: Final = 500
"""The most levels of objects and arrays. No Kubernetes object has a tenth of them."""


class NestedTooDeeplyError(ValueError):
    """The JSON has more levels than `read_bounded_json` reads."""

    def __init__(self) -> None:
        super().__init__("the values are nested too deeply")


def read_bounded_json(text: str | bytes, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """Return the value of a JSON text.

    `parse_constant`: called with NaN, Infinity and -Infinity, as by `json.loads`. Raises ValueError for
    invalid JSON; NestedTooDeeplyError, a ValueError, for more than MAX_DEPTH levels.
    """
    if isinstance(text, bytes | bytearray):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    if is_nested_deeper(text, MAX_DEPTH):
        raise NestedTooDeeplyError
    try:
        return json.loads(text, parse_constant=parse_constant)
    except RecursionError as err:  # the caller is close to the limit of Python itself
        raise NestedTooDeeplyError from err


def is_nested_deeper(text: str, levels: int) -> bool:
    """Return True if a JSON text opens more than `levels` objects and arrays within each other.

    Brackets in strings do not count. The text may be invalid.
    """
    if text.count("{") + text.count("[") <= levels:
        return False
    return opens_more_than(text.encode(errors="surrogatepass"), levels)
