"""Kubernetes quantities -> exact integers. Called wherever an object is read.

A quantity is an integer count of billionths, so sums are exact. Reading rounds finer digits up. The two
readings of a sum round up, as `MilliValue` and `Value` do.

Source: apimachinery `api/resource/quantity.go` (rules and suffixes).
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from berth_sdk.errors import QuantityError

NANO: Final = 10**9
_SUFFIXES: Final[dict[str, Fraction]] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_PATTERN: Final = re.compile(
    r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d{1,3})|(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)?)",
    re.ASCII,
)
_MAX_INT64: Final = 2**63 - 1
Quantity = str | int | float


@lru_cache(maxsize=16384)
def _parse(text: str) -> int:
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise QuantityError(text)
    sign, digits, exponent, suffix = match.groups()
    scale = _SUFFIXES[suffix or ""] if exponent is None else Fraction(10) ** int(exponent)
    try:
        value = Fraction(digits.rstrip(".")) * scale * NANO
    except ValueError as err:  # thousands of digits
        raise QuantityError(text) from err
    nano = -(-value.numerator // value.denominator)
    return -nano if sign == "-" else nano


def nano_value(value: Quantity) -> int:
    """Return billionths, exact: the form in which quantities are added and compared. Raises QuantityError.

    >>> nano_value("1500m")
    1500000000
    """
    if isinstance(value, str):
        return _parse(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QuantityError(value)
    return value * NANO if isinstance(value, int) else _parse(repr(value))


def _ceil(value: int, divisor: int) -> int:
    """Divide and round away from zero, as upstream does for negative quantities too."""
    magnitude = -(-abs(value) // divisor)
    # Quantities beyond int64 are capped.
    return max(-_MAX_INT64 - 1, min(_MAX_INT64, -magnitude if value < 0 else magnitude))


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
    """Return base units, rounded up (`Value`): bytes, counts, everything but cpu.

    >>> whole_value("1Ki"), whole_value("1500m")
    (1024, 2)
    """
    return _ceil(nano_value(value), NANO)
