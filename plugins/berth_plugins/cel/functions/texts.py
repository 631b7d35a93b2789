"""Texts.

Source: `cel-go` ext/strings.go, version 2 of the library, v0.29.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from berth_plugins.cel.errors import EvalError
from berth_plugins.cel.functions.formatting import format_text
from berth_plugins.cel.functions.operators import no_overload
from berth_plugins.cel.values import shown
from berth_plugins.cel.work import spend, spend_on_text

# What Go's strings.TrimSpace removes.
_SPACES: Final = (
    "\t\n\v\f\r \x85\xa0\u1680"
    + "".join(map(chr, range(0x2000, 0x200B)))
    + ("\u2028\u2029\u202f\u205f\u3000")
)
_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {lower: upper for upper, lower in _LOWER.items()}
_QUOTED: Final = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
)


def _out_of_range(index: int) -> EvalError:
    return EvalError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if offset < 0:
        raise _out_of_range(offset)
    if not part:
        return min(offset, len(text))
    return text.find(part, offset)


def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


def _last_index_of_offset(text: str, part: str, offset: int) -> int:
    if offset < 0:
        raise _out_of_range(offset)
    if not part:
        return min(offset, len(text))
    if offset >= len(text):
        return -1
    return text.rfind(part, 0, offset + len(part))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    times = text.count(old) if count < 0 else min(count, text.count(old))
    spend_on_text(len(text) + times * len(new))
    return text.replace(old, new, max(count, -1))


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    spend(text.count(separator) + 1)
    if not separator:
        parts = list(text)
        return (
            parts if count < 0 or len(parts) <= count else [*parts[: count - 1], "".join(parts[count - 1 :])]
        )
    return text.split(separator, -1 if count < 0 else count - 1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise EvalError(f"invalid substring range. start: {start}, end: {end}")
    for one in (start, *(() if end is None else (end,))):
        if not 0 <= one <= len(text):
            raise _out_of_range(one)
    return text[start:end]


def _join(texts: list[Any], separator: str = "") -> str:
    for one in texts:
        if not isinstance(one, str):
            raise EvalError(f"join: invalid input: {shown(one)}")
    spend_on_text(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def _between_texts(check: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    def checked(text: Any, part: Any) -> bool:
        if type(text) is not str or type(part) is not str:
            raise no_overload()
        return check(text, part)

    return checked


# Functions of one overload that check the types of their arguments themselves.
SINGLETONS: Final[dict[str, Callable[..., Any]]] = {
    "contains": _between_texts(lambda text, part: part in text),
    "endsWith": _between_texts(str.endswith),
    "startsWith": _between_texts(str.startswith),
}
OVERLOADS: Final[dict[str, Callable[..., Any]]] = {
    "string_char_at_int": _char_at,
    "string_index_of_string": _index_of,
    "string_index_of_string_int": _index_of,
    "string_last_index_of_string": _last_index_of,
    "string_last_index_of_string_int": _last_index_of_offset,
    "string_lower_ascii": lambda text: text.translate(_LOWER),
    "string_upper_ascii": lambda text: text.translate(_UPPER),
    "string_replace_string_string": _replace,
    "string_replace_string_string_int": _replace,
    "string_split_string": _split,
    "string_split_string_int": _split,
    "string_substring_int": _substring,
    "string_substring_int_int": _substring,
    "string_trim": lambda text: text.strip(_SPACES),
    "string_format": format_text,
    "strings_quote": lambda text: f'"{text.translate(_QUOTED)}"',
    "list_join": _join,
    "list_join_string": _join,
}
