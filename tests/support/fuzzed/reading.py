"""A parser of JSON without recursion, independent of berth's: for objects of any depth, and to compare with.

Numbers stay text, and of equal keys the last one counts.
"""

from __future__ import annotations

import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Final

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORDS: Final = {"true": True, "false": False, "null": None}


class Number(str):
    """A number as it was written."""

    __slots__ = ()


def parsed(text: str) -> Any:
    """Return the value of a JSON text. Raises ValueError."""
    root: list[Any] = []
    open_in: list[Any] = [root]
    keys: list[str | None] = [None]
    at = 0
    needs_value = True
    while True:
        at = _after_space(text, at)
        if not needs_value:
            if len(open_in) == 1:
                break
            closing = "}" if isinstance(open_in[-1], dict) else "]"
            char = text[at : at + 1]
            if char == closing:
                open_in.pop()
                keys.pop()
                at += 1
                continue
            if char != ",":
                raise ValueError(f"position {at}: expected , or {closing}")
            at = _after_space(text, at + 1)
            if closing == "}":
                keys[-1], at = _key(text, at)
            needs_value = True
            continue
        char = text[at : at + 1]
        value: Any
        if char in ("{", "["):
            value = {} if char == "{" else []
            _put(open_in[-1], keys[-1], value)
            at = _after_space(text, at + 1)
            if text[at : at + 1] == ("}" if char == "{" else "]"):
                at, needs_value = at + 1, False
                continue
            open_in.append(value)
            keys.append(None)
            if char == "{":
                keys[-1], at = _key(text, at)
            continue
        value, at = _scalar(text, at)
        _put(open_in[-1], keys[-1], value)
        needs_value = False
    if at != len(text):
        raise ValueError(f"position {at}: more than one value")
    return root[0]


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _put(holder: Any, key: str | None, value: Any) -> None:
    if isinstance(holder, list):
        holder.append(value)
    else:
        holder[key] = value


def _key(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] != '"':
        raise ValueError(f"position {at}: expected a key")
    key, at = scanstring(text, at + 1, True)
    at = _after_space(text, at)
    if text[at : at + 1] != ":":
        raise ValueError(f"position {at}: expected :")
    return key, _after_space(text, at + 1)


def _scalar(text: str, at: int) -> tuple[Any, int]:
    if text[at : at + 1] == '"':
        value, end = scanstring(text, at + 1, True)
        return value, end
    for word, meaning in _WORDS.items():
        if text.startswith(word, at):
            return meaning, at + len(word)
    number = _NUMBER.match(text, at)
    if number is None:
        raise ValueError(f"position {at}: expected a value")
    return Number(number.group()), number.end()
