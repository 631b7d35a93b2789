"""Resolves YAML words by the rules of yaml.v2, which Kubernetes uses.

The rules differ from those of PyYAML's loader: `y` is a boolean, `010` is 8, `1:30` is a string, `1e3` is a
number. Called by the YAML reader.
Source: go.yaml.in/yaml v2 `resolve.go`, and strconv's ParseInt with base 0.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from typing import Final, TypeAlias

Scalar: TypeAlias = bool | int | float | str | None

_TAG: Final = "tag:yaml.org,2002:"
_MIN_INT: Final = -(2**63)
_MAX_UINT: Final = 2**64 - 1
_MAX_DIGITS: Final = 400

_TIMESTAMP: Final = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ]|$)")
_TRUE: Final = ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")
_FALSE: Final = ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")
_NULL: Final = ("", "~", "null", "Null", "NULL")
_WORDS: Final[Mapping[str, Scalar]] = {
    **dict.fromkeys(_TRUE, True),
    **dict.fromkeys(_FALSE, False),
    **dict.fromkeys(_NULL),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_INTEGER: Final = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_SIGNED_BINARY: Final = re.compile(r"0b[-+][01]{1,63}")
_BETWEEN_DIGITS: Final = re.compile(r"(?<=[0-9])_(?=[0-9])")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")


class YamlTextError(Exception):
    """The text is not YAML. Attributes: message, line (from 1; None: unknown)."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


def resolve_word(word: str) -> Scalar:
    """Return the value of an unquoted word without a tag; NaN and infinities become floats."""
    if word in _WORDS:
        return _WORDS[word]
    if word[0] == ".":
        # ParseFloat accepts an underscore only between digits.
        plain = _BETWEEN_DIGITS.sub("", word)
        return float(plain) if _FLOAT.fullmatch(plain) else word
    if word[0] not in "+-0123456789":
        return word
    plain = word.replace("_", "")
    integer = _integer(plain)
    if integer is not None:
        return integer
    if _SIGNED_BINARY.fullmatch(plain):
        return int(plain[2:], 2)  # As yaml.v2 reads `0b-1`.
    if _FLOAT.fullmatch(plain):
        number = float(plain)
        # In yaml.v2 a number that does not fit into a float64 stays a string.
        return word if math.isinf(number) else number
    return word


def resolve_tagged(tag: str, text: str, line: int) -> Scalar:
    """Return the value of a scalar with an explicit tag. Raises YamlTextError if the text does not fit."""
    name = tag.removeprefix(_TAG) if tag.startswith(_TAG) else None
    if name is None or name == "str":
        return text
    if name == "timestamp":
        if not _TIMESTAMP.match(text):
            raise YamlTextError(f"yaml: cannot decode !!str `{text}` as a !!timestamp", line)
        return text
    if name == "binary":
        try:
            return base64.b64decode("".join(text.splitlines()), validate=True).decode(errors="replace")
        except ValueError as err:
            raise YamlTextError("yaml: !!binary value contains invalid base64 data", line) from err
    value = resolve_word(text)
    if name == "float" and type(value) is int:
        return float(value)
    if name != _name_of(value):
        if name in ("bool", "int", "float", "null"):
            raise YamlTextError(f"yaml: cannot decode !!{_name_of(value)} `{text}` as a !!{name}", line)
        return text
    return value


def _integer(plain: str) -> int | None:
    matched = _INTEGER.fullmatch(plain)
    if matched is None or len(plain) > _MAX_DIGITS:
        return None
    sign, hexadecimal, binary, octal, decimal = matched.groups()
    digits, base = next(
        (digits, base)
        for digits, base in ((hexadecimal, 16), (binary, 2), (octal, 8), (decimal, 10))
        if digits is not None
    )
    value = int(digits, base) * (-1 if sign == "-" else 1)
    # Signed 64 bits, or unsigned for a number without a sign; a larger number becomes a float.
    return value if _MIN_INT <= value <= (_MAX_UINT if not sign else -_MIN_INT - 1) else None


def _name_of(value: Scalar) -> str:
    if value is None:
        return "null"
    return {bool: "bool", int: "int", float: "float", str: "str"}[type(value)]
