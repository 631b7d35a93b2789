"""RFC 3339 times, the texts of Kubernetes' `Time` and `MicroTime`, read and written as Go does.

The one reader and the one writer of host, SDK and plugins. A time without a zone is an error everywhere, as
every API server and Go client refuses it.
Source: apimachinery `meta/v1/time.go` and `micro_time.go`; Go `time.Parse` with `time.RFC3339`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

_SECOND_NS: Final = 1_000_000_000
_SECOND_US: Final = 1_000_000
_SECONDS_OF_DAY: Final = 86_400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# As Go reads it: the hour may have one digit, and a comma may stand before the fraction.
_TEXT: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d{1,2}):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)


def parse_time(text: object) -> float:
    """Return Unix seconds of an RFC 3339 time. Raises ValueError, also for anything but a text."""
    if not isinstance(text, str):
        raise ValueError('it is not a time in quotes, such as "2026-01-01T00:00:00Z"')
    return _unix_seconds(text)


@lru_cache(maxsize=256)
def _unix_seconds(text: str) -> float:
    """Return Unix seconds, cached: many pods are created in the same second, and their times have no
    fractions.
    """
    return parse_time_ns(text)[0] / _SECOND_NS


def parse_time_ns(text: str) -> tuple[int, int]:
    """Return nanoseconds since 1970, and the zone's offset from UTC in seconds. Raises ValueError.

    Digits after the ninth of a fraction are dropped.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f'"{text[:50]}" is not a time with its zone, such as 2026-01-01T00:00:00Z')
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    fraction_ns = int((match[7] or "0")[:9].ljust(9, "0"))
    offset_s = 0
    if match[8]:
        hours, minutes = int(match[9]), int(match[10])
        if hours > 24 or minutes > 60:
            raise ValueError(f"there is no zone {match[8]}{match[9]}:{match[10]}")
        offset_s = (hours * 60 + minutes) * 60 * (-1 if match[8] == "-" else 1)
    since = datetime(year, month, day, hour, minute, second, tzinfo=UTC) - _EPOCH
    unix_s = since.days * _SECONDS_OF_DAY + since.seconds - offset_s
    return unix_s * _SECOND_NS + fraction_ns, offset_s


def format_time(moment_s: float) -> str:
    """Return Unix seconds as a `Time`: `2026-01-01T00:00:00Z`. Fractions are dropped.

    Raises ValueError, OverflowError or OSError for a year that has no four digits.
    """
    return f"{_second(int(moment_s // 1))}Z"


def format_micro_time(moment_s: float) -> str:
    """Return Unix seconds as a `MicroTime`, to the nearest microsecond: `2026-01-01T00:00:00.000000Z`.

    Raises ValueError, OverflowError or OSError for a year that has no four digits.
    """
    second, micros = divmod(round(moment_s * _SECOND_US), _SECOND_US)
    return f"{_second(second)}.{micros:06d}Z"


@lru_cache(maxsize=64)
def _second(second: int) -> str:
    """Return Unix seconds as `2026-01-01T00:00:00`. Cached, as many objects and events have the same."""
    # `strftime` takes twice as long, and an answer about the whole queue has 30,000 times.
    return datetime.fromtimestamp(second, UTC).isoformat()[:19]
