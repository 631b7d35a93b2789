"""Parts of times and durations.

Source: `cel-go` common/types/timestamp.go and duration.go, v0.29. Times without a zone are read in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from berth_plugins.cel.errors import EvalError
from berth_plugins.cel.values import Duration, Timestamp

_PARTS: Final[dict[str, tuple[str, Callable[[datetime], int]]]] = {
    "timestamp_to_year": ("timestamp_to_year_with_tz", lambda at: at.year),
    "timestamp_to_month": ("timestamp_to_month_with_tz", lambda at: at.month - 1),
    "timestamp_to_day_of_year": (
        "timestamp_to_day_of_year_with_tz",
        lambda at: at.timetuple().tm_yday - 1,
    ),
    "timestamp_to_day_of_month": ("timestamp_to_day_of_month_with_tz", lambda at: at.day - 1),
    "timestamp_to_day_of_month_1_based": (
        "timestamp_to_day_of_month_1_based_with_tz",
        lambda at: at.day,
    ),
    "timestamp_to_day_of_week": ("timestamp_to_day_of_week_with_tz", lambda at: at.isoweekday() % 7),
    "timestamp_to_hours": ("timestamp_to_hours_with_tz", lambda at: at.hour),
    "timestamp_to_minutes": ("timestamp_to_minutes_with_tz", lambda at: at.minute),
    "timestamp_to_seconds": ("timestamp_to_seconds_tz", lambda at: at.second),
    "timestamp_to_milliseconds": (
        "timestamp_to_milliseconds_with_tz",
        lambda at: at.microsecond // 1000,
    ),
}
_OFFSET: Final = re.compile(r"([+-]?[0-9]+):([+-]?[0-9]+)", re.ASCII)

_MAX_DIGITS: Final = 18


def _local(at: Timestamp, zone: str) -> datetime:
    """Return the time in a zone. Raises EvalError, also for a time outside of the years 1 to 9999."""
    try:
        if ":" in zone:
            return at.moment + timedelta(minutes=_offset_minutes(zone))
        if ".." in zone or zone.startswith(("/", "\\")):
            raise EvalError("time: invalid location name")
        return at.moment.astimezone(ZoneInfo("UTC" if zone in ("", "Local") else zone))
    except OverflowError as err:
        raise EvalError("timestamp overflow") from err
    except (ZoneInfoNotFoundError, ValueError, OSError) as err:
        raise EvalError(f"unknown time zone {zone}") from err


def _offset_minutes(zone: str) -> int:
    """Read an offset such as `-05:30`. Raises EvalError."""
    match = _OFFSET.fullmatch(zone)
    if match is None:
        part = zone.partition(":")[0]
        raise EvalError(f'strconv.Atoi: parsing "{part}": invalid syntax')
    for part in match.groups():
        if len(part.lstrip("+-0")) > _MAX_DIGITS:
            raise EvalError(f'strconv.Atoi: parsing "{part}": value out of range')
    hours, minutes = int(match[1]), int(match[2])
    if not 0 <= minutes <= 59:
        raise EvalError(f"timezone offset minutes out of range [0, 59]: {zone}")
    return hours * 60 - minutes if zone.startswith("-") else hours * 60 + minutes


def _in_zone(part: Callable[[datetime], int]) -> Callable[[Timestamp, str], int]:
    return lambda at, zone: part(_local(at, zone))


def _in_utc(part: Callable[[datetime], int]) -> Callable[[Timestamp], int]:
    return lambda at: part(at.moment)


def _whole(unit: int) -> Callable[[Duration], int]:
    return lambda span: int(abs(span.nanoseconds) // unit) * (-1 if span.nanoseconds < 0 else 1)


OVERLOADS: Final[dict[str, Callable[..., Any]]] = {
    **{name: _in_utc(part) for name, (_, part) in _PARTS.items()},
    **{with_zone: _in_zone(part) for with_zone, part in _PARTS.values()},
    "duration_to_hours": _whole(3600 * 10**9),
    "duration_to_minutes": _whole(60 * 10**9),
    "duration_to_seconds": _whole(10**9),
    "duration_to_milliseconds": _whole(10**6),
}
