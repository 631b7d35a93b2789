"""Durations as Go writes them (`1m30s`), in nanoseconds or seconds.

Source: Go `time.ParseDuration`, `Duration.String`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

SECOND_NS: Final = 1_000_000_000
_UNITS_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": SECOND_NS,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]+)")
_MAX_NS: Final = 2**63 - 1


def parse_duration(text: str) -> int:
    """Nanoseconds of a text such as `1h2m3.5s`, `250ms` or `0`. Raises ValueError with the reason."""
    sign, unsigned = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if unsigned == "0":
        return 0
    if not unsigned:
        raise ValueError(f'invalid duration "{text}": write it as 500ms, 10s or 1m30s')
    total, position = 0, 0
    while position < len(unsigned):
        part = _PART.match(unsigned, position)
        if part is None or not (part.group(1) or part.group(2)):
            raise ValueError(f'invalid duration "{text}": {_cure(unsigned[position:])}')
        whole, fraction, unit = part.groups()
        if unit not in _UNITS_NS:
            raise ValueError(f'unknown unit "{unit}" in duration "{text}": use ns, us, ms, s, m or h')
        total += int(Fraction(f"{whole or 0}.{fraction or 0}") * _UNITS_NS[unit])
        position = part.end()
    if total > _MAX_NS + (sign < 0):
        raise ValueError(f'duration "{text}" is longer than 292 years')
    return sign * total


def _cure(rest: str) -> str:
    if re.fullmatch(r"[0-9.]+", rest):
        return "the unit is missing (ns, us, ms, s, m or h)"
    return "write it as 500ms, 10s or 1m30s"


def format_duration(duration_ns: int) -> str:
    """Return the text Go prints: `2.5s`, `10m0s`, `1h0m0s`, `100ms`, `0s`."""
    if duration_ns == 0:
        return "0s"
    sign, size = ("-", -duration_ns) if duration_ns < 0 else ("", duration_ns)
    if size < _UNITS_NS["s"]:
        unit = "ns" if size < 1_000 else "µs" if size < 1_000_000 else "ms"
        return f"{sign}{_decimal(size, _UNITS_NS[unit])}{unit}"
    minutes, rest_ns = divmod(size, _UNITS_NS["m"])
    seconds = f"{_decimal(rest_ns, _UNITS_NS['s'])}s"
    if minutes == 0:
        return f"{sign}{seconds}"
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours}h{minutes}m{seconds}" if hours else f"{sign}{minutes}m{seconds}"


def format_seconds(duration_s: float) -> str:
    """Return the text that Go prints for a duration in seconds."""
    # Settings are whole nanoseconds; rounding removes the error of binary fractions.
    return format_duration(round(duration_s * SECOND_NS))


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    digits = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)
