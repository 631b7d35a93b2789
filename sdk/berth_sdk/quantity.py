"""Kubernetes quantities -> exact integers. Called wherever an object is read.

A quantity is an integer count of billionths, so sums are exact. Reading rounds finer digits up. The two
readings of a sum round up, as `MilliValue` and `Value` do.

Source: apimachinery `api/resource/quantity.go` (rules and suffixes).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from berth_sdk.errors import QuantityError

NANO: Final = 10**9
_POWERS_OF_TEN: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_POWERS_OF_TWO: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
# No part gives digits back to another: a long text that is no quantity is refused in one pass.
_PATTERN: Final = re.compile(
    r"([+-]?)(?=\.?\d)(\d*+)\.?+(\d*+)(?:[eE]([+-]?\d{1,18})|(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)?)",
    re.ASCII,
)
_MAX_INT64: Final = 2**63 - 1
_MOST_DIGITS: Final = 40
"""A value with more digits before its point counts as 10**40: no sum of such values fits anywhere."""
_KEPT_DIGITS: Final = 100
_SHORT_DIGITS: Final = 18
"""apimachinery keeps a decimal amount of so many digits as an int64 with a power of ten."""
_NANO_DIGITS: Final = 9
_CACHED_LENGTH: Final = 64
"""The longest text that is cached: any user may write long ones."""
Quantity = str | int | float


def _parse(text: str) -> int:
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise QuantityError(text)
    sign, whole, decimals, exponent, suffix = match.groups()
    digits = (whole + decimals).lstrip("0")
    if not digits:
        return 0
    power = int(exponent) if exponent else _POWERS_OF_TEN.get(suffix or "", 0)
    power -= len(decimals)
    if len(digits) > _KEPT_DIGITS:
        # The result is rounded up, so of the other digits it matters only whether one is not zero.
        rest = digits[_KEPT_DIGITS:]
        digits = digits[:_KEPT_DIGITS] + ("1" if rest.strip("0") else "0")
        power += len(rest) - 1
    is_binary = suffix in _POWERS_OF_TWO
    size = len(digits) + power
    if size > _MOST_DIGITS:
        nano = NANO * (_MAX_INT64 if is_binary else 10**_MOST_DIGITS)
    elif size < -_MOST_DIGITS:
        nano = 1
    else:
        power += _NANO_DIGITS
        mantissa = int(digits) << _POWERS_OF_TWO.get(suffix, 0)
        nano = mantissa * 10**power if power >= 0 else -(-mantissa // 10**-power)
        if is_binary:
            nano = min(nano, NANO * _MAX_INT64)
    return -nano if sign == "-" else nano


_parse_cached: Final = lru_cache(maxsize=16384)(_parse)


def nano_value(value: Quantity) -> int:
    """Return billionths, exact: the form in which quantities are added and compared. Raises QuantityError.

    >>> nano_value("1500m")
    1500000000
    """
    if isinstance(value, str):
        return _parse_cached(value) if len(value) <= _CACHED_LENGTH else _parse(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QuantityError(value)
    return value * NANO if isinstance(value, int) else _parse(repr(value))


def _ceil(value: int, divisor: int) -> int:
    """Divide and round away from zero, as upstream does for negative quantities too."""
    magnitude = -(-abs(value) // divisor)
    # Quantities beyond int64 are capped.
    return max(-_MAX_INT64 - 1, min(_MAX_INT64, -magnitude if value < 0 else magnitude))


def wrapped_value(value: Quantity) -> int:
    """Return base units, rounded up, as `Value` of apimachinery gave them before v0.38: of an amount beyond
    int64 its low 64 bits, or 0 where the text has at most 18 digits and a decimal suffix. Raises
    QuantityError.

    >>> wrapped_value("1500m"), wrapped_value("9223372036854775808"), wrapped_value("100E")
    (2, -9223372036854775808, 0)
    """
    nano = nano_value(value)
    units = -(-abs(nano) // NANO)
    if units <= _MAX_INT64:
        return -units if nano < 0 else units
    match = _PATTERN.fullmatch(str(value))
    if match is None:
        return 0  # a number such as 1e+300, which JSON writes otherwise
    sign, whole, decimals, exponent, suffix = match.groups()
    if len(whole.lstrip("0")) + len(decimals) <= _SHORT_DIGITS:
        return 0
    power = (int(exponent) if exponent else _POWERS_OF_TEN.get(suffix or "", 0)) - len(decimals)
    if power >= 64:
        return 0  # a multiple of 2**64
    mantissa = int(whole + decimals)
    units = mantissa * 10**power if power >= 0 else -(-mantissa // 10**-power)
    low: int = (-units if sign == "-" else units) & (2**64 - 1)
    return low - 2**64 if low > _MAX_INT64 else low


def resource_units(resource: str, nano: int) -> int:
    """Return `nano` billionths in the unit of `resource`, rounded up: cpu in milli, all else in base
    units.
    """
    return _ceil(nano, 10**6) if resource == "cpu" else _ceil(nano, NANO)


def milli_value(value: Quantity) -> int:
    """Return thousandths, rounded up (`MilliValue`): the unit of cpu.

    >>> milli_value("0.1"), milli_value("100u")
    (100, 1)
    """
    return _ceil(nano_value(value), 10**6)


def whole_value(value: Quantity) -> int:
    """Return base units, rounded up (`Value`): bytes, counts, everything but cpu. At most what int64 holds.

    >>> whole_value("1Ki"), whole_value("1500m")
    (1024, 2)
    """
    return _ceil(nano_value(value), NANO)
