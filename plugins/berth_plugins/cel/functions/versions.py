"""Semantic versions.

Source: `apiserver/pkg/cel/library/semverlib.go`, v1.37; `blang/semver` v4 for the texts of errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from berth_plugins.cel.declarations import SEMVER
from berth_plugins.cel.errors import EvalError
from berth_plugins.cel.functions.formatting import quoted
from berth_plugins.cel.values import UINT_MAX, Opaque, Value

_DIGITS: Final = re.compile(r"[0-9]*", re.ASCII)
_WORD: Final = re.compile(r"[0-9A-Za-z-]*", re.ASCII)


class Semver(Opaque):
    """A semantic version. `order`: its place among other versions; build metadata has none."""

    __slots__ = ("numbers", "order")
    cel_type = SEMVER

    def __init__(self, numbers: tuple[int, int, int], suffix: list[int | str]) -> None:
        self.numbers = numbers
        # A version without a suffix comes after those with one; numbers come before words.
        ranks = tuple((0, one, "") if isinstance(one, int) else (1, 0, one) for one in suffix)
        self.order = (*numbers, not suffix, ranks)

    @staticmethod
    def of(text: str) -> Semver:
        """Read a version. Raises EvalError."""
        if not text:
            raise EvalError("Version string empty")
        parts = text.split(".", 2)
        if len(parts) != 3:
            raise EvalError("No Major.Minor.Patch elements found")
        major, minor = (_number(one, kind) for one, kind in zip(parts, ("major", "minor"), strict=False))
        patch, plus, build = parts[2].partition("+")
        patch, dash, suffix = patch.partition("-")
        numbers = (major, minor, _number(patch, "patch"))
        found = [_suffix_part(one) for one in suffix.split(".")] if dash else []
        for one in build.split(".") if plus else ():
            if not one:
                raise EvalError("Build meta data is empty")
            if _WORD.fullmatch(one) is None:
                raise EvalError(f"Invalid character(s) found in build meta data {quoted(one)}")
        return Semver(numbers, found)

    @staticmethod
    def normalized(text: str, normalize: bool) -> Semver:
        """Read a version that may lack parts, begin with a `v` or have leading zeros. Raises EvalError."""
        if not normalize:
            return Semver.of(text)
        parts = [_without_zeros(one) for one in text.removeprefix("v").split(".", 2)]
        if len(parts) < 3:
            if "+" in parts[-1] or "-" in parts[-1]:
                raise EvalError("short version cannot contain PreRelease/Build meta data")
            parts += ["0"] * (3 - len(parts))
        return Semver.of(".".join(parts))

    def equals(self, other: Value) -> bool:
        """Compare with another version. Raises EvalError for another value."""
        if not isinstance(other, Semver):
            raise EvalError("no such overload")
        return self.order == other.order


def _without_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    short = part.lstrip("0")
    return short if short[:1].isdigit() else f"0{short}"


def _number(text: str, kind: str) -> int:
    if _DIGITS.fullmatch(text) is None:
        raise EvalError(f"Invalid character(s) found in {kind} number {quoted(text)}")
    if len(text) > 1 and text[0] == "0":
        raise EvalError(f"{kind.capitalize()} number must not contain leading zeroes {quoted(text)}")
    return _uint(text)


def _uint(text: str) -> int:
    if not text:
        raise EvalError('strconv.ParseUint: parsing "": invalid syntax')
    if len(text) > 20 or int(text) > UINT_MAX:
        raise EvalError(f"strconv.ParseUint: parsing {quoted(text)}: value out of range")
    return int(text)


def _suffix_part(text: str) -> int | str:
    if not text:
        raise EvalError("Prerelease is empty")
    if _DIGITS.fullmatch(text) is not None:
        if len(text) > 1 and text[0] == "0":
            raise EvalError(f"Numeric PreRelease version must not contain leading zeroes {quoted(text)}")
        return _uint(text)
    if _WORD.fullmatch(text) is None:
        raise EvalError(f"Invalid character(s) found in prerelease {quoted(text)}")
    return text


def _is_semver(text: str, normalize: bool = False) -> bool:
    try:
        Semver.normalized(text, normalize)
    except EvalError:
        return False
    return True


def _order(one: Semver, other: Semver) -> int:
    return int(one.order > other.order) - int(one.order < other.order)


OVERLOADS: Final[dict[str, Callable[..., Any]]] = {
    "string_to_semver": Semver.of,
    "string_bool_to_semver": Semver.normalized,
    "is_semver_string": _is_semver,
    "is_semver_string_bool": _is_semver,
    "semver_is_greater_than": lambda one, other: one.order > other.order,
    "semver_is_less_than": lambda one, other: one.order < other.order,
    "semver_compare_to": _order,
    "semver_major": lambda one: one.numbers[0],
    "semver_minor": lambda one: one.numbers[1],
    "semver_patch": lambda one: one.numbers[2],
}
