"""Regular expressions, with the syntax and the linear time of RE2.

Source: `apiserver/pkg/cel/library/regex.go`, v1.37; Go's `regexp/syntax` for the texts of errors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final

from berth_plugins.cel.errors import CelError, EvalError
from berth_plugins.cel.functions.operators import no_overload
from berth_plugins.cel.work import spend

# Reasons of the library, as Go writes them.
_REASONS: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "bad repetition operator": "invalid nested repetition operator",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
}


class PatternError(CelError):
    """A regular expression cannot be read."""


@cache
def library() -> Any:
    """Return the module `re2`; None without the extra."""
    # Imported late: a cluster without CEL selectors never needs the library.
    try:
        import re2
    except ImportError:
        return None
    return re2


@lru_cache(maxsize=256)
def pattern(text: str) -> Any:
    """Return the compiled regular expression. Raises PatternError."""
    module = library()
    options = module.Options()
    options.log_errors = False
    try:
        return module.compile(text, options)
    except module.error as err:
        reason = err.args[0].decode(errors="replace") if err.args else ""
    code, _, part = reason.partition(": ")
    if code == "trailing \\":
        code, part = "trailing backslash at end of expression", ""
    raise PatternError(f"error parsing regexp: {_REASONS.get(code, code)}: `{part}`")


def _matches(text: Any, regex: Any) -> bool:
    if type(text) is not str or type(regex) is not str:
        raise no_overload()
    try:
        return pattern(regex).search(text) is not None
    except PatternError as err:
        raise EvalError(str(err)) from err


def _legal(regex: str) -> Any:
    try:
        return pattern(regex)
    except PatternError as err:
        raise EvalError(f"Illegal regex: {err}") from err


def _find(text: str, regex: str) -> str:
    found = _legal(regex).search(text)
    return "" if found is None else str(found.group(0))


def _find_all(text: str, regex: str, count: int = -1) -> list[str]:
    found: list[str] = []
    end = -1
    for match in _legal(regex).finditer(text):
        if 0 <= count <= len(found):
            break
        # An empty match right after another match does not count.
        if match.end() > match.start() or match.start() != end:
            spend(1)
            found.append(match.group(0))
        end = match.end()
    return found


# The place of the pattern among the arguments, for functions whose constant pattern is checked at once.
PATTERN_PLACES: Final = {"matches": 1, "find": 1, "findAll": 1}
SINGLETONS: Final[dict[str, Callable[..., Any]]] = {"matches": _matches}
OVERLOADS: Final[dict[str, Callable[..., Any]]] = {
    "string_find_string": _find,
    "string_find_all_string": _find_all,
    "string_find_all_string_int": _find_all,
}
