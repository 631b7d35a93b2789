"""Quantities.

Source: `apiserver/pkg/cel/library/quantity.go` and `apimachinery/pkg/api/resource`, v1.37.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from berth_sdk.errors import QuantityError
from berth_sdk.quantity import NANO, nano_value

from berth_plugins.cel.declarations import QUANTITY
from berth_plugins.cel.errors import EvalError
from berth_plugins.cel.values import INT_MAX, INT_MIN, Opaque, Value

_SHAPE: Final = re.compile(r"[+-]?[0-9.]+[eEinumkKMGTP]*[-+]?[0-9]*", re.ASCII)
_NUMBER: Final = re.compile(r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?(.*)", re.ASCII)
_SCALES: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_MAX_DIGITS: Final = 18
_MAX_BINARY_DIGITS: Final = 15

# A number and its decimal exponent, which upstream keeps for short numbers only.
_Amount = tuple[int, int]


class Quantity(Opaque):
    """A quantity. `nano`: exact billionths. `amount`: None where upstream counts without limits, and then
    tells no integer. `is_computed`: upstream does not compare such a quantity from the right.
    """

    __slots__ = ("amount", "is_computed", "nano")
    cel_type = QUANTITY

    def __init__(self, nano: int, amount: _Amount | None, *, is_computed: bool = False) -> None:
        self.nano = nano
        self.amount = amount
        self.is_computed = is_computed

    @staticmethod
    def of(text: str) -> Quantity:
        """Read a quantity. Raises EvalError."""
        try:
            return Quantity(nano_value(text), _amount(text))
        except QuantityError as err:
            if _SHAPE.fullmatch(text) is None or text.strip("+-0123456789.") not in ("", "e", "E"):
                shape = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
                raise EvalError(f"quantities must match the regular expression '{shape}'") from err
            raise EvalError("unable to parse quantity's suffix") from err

    def equals(self, other: Value) -> bool:
        """Compare with another quantity. Raises EvalError for another value."""
        if not isinstance(other, Quantity) or other.is_computed:
            raise EvalError("no such overload")
        return self.nano == other.nano

    @property
    def integer(self) -> int | None:
        """The quantity as an int; None if upstream does not tell one."""
        if self.amount is None:
            return None
        number, exponent = self.amount
        return _scaled(number, exponent) if exponent >= 0 else None


def _amount(text: str) -> _Amount | None:
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    sign, whole, fraction, suffix = match[1], match[2] or "0", match[3] or "", match[4]
    factor = 1
    if suffix in _BINARY:
        bits = _BINARY[suffix]
        if fraction:
            return None
        room = _MAX_BINARY_DIGITS - len(whole) - int(bits * 3 / 10) - 1
        exponent, factor = 0, 1 << bits
    else:
        scale = _SCALES.get(suffix)
        exponent = int(suffix[1:]) if scale is None else scale
        room = _MAX_DIGITS - len(whole) - len(fraction)
    exponent -= len(fraction)
    if room < 0 or exponent < -9:
        return None
    number = int(whole + fraction) * factor
    if number > INT_MAX:
        return None
    return (-number if sign == "-" else number), exponent


def _scaled(number: int, exponent: int) -> int | None:
    found = number * 10 ** min(exponent, 40)
    return found if INT_MIN <= found <= INT_MAX else None


def _sum(one: Quantity, other: Quantity, sign: int) -> Quantity:
    amount: _Amount | None = None
    if one.amount is not None and other.amount is not None:
        amount = _added(one.amount, (sign * other.amount[0], other.amount[1]))
    return Quantity(one.nano + sign * other.nano, amount, is_computed=True)


def _added(one: _Amount, other: _Amount) -> _Amount | None:
    if other[0] == 0:
        return one
    if one[0] == 0:
        return other
    exponent = min(one[1], other[1])
    first = _scaled(one[0], one[1] - exponent)
    second = _scaled(other[0], other[1] - exponent)
    if first is None or second is None or _scaled(first + second, 0) is None:
        return None
    return first + second, exponent


def _whole(number: int) -> Quantity:
    return Quantity(number * NANO, (number, 0))


def _as_integer(one: Quantity) -> int:
    if one.integer is None:
        raise EvalError("cannot convert value to integer")
    return one.integer


def _is_quantity(text: str) -> bool:
    try:
        Quantity.of(text)
    except EvalError:
        return False
    return True


def _order(one: Quantity, other: Quantity) -> int:
    return int(one.nano > other.nano) - int(one.nano < other.nano)


OVERLOADS: Final[dict[str, Callable[..., Any]]] = {
    "string_to_quantity": Quantity.of,
    "is_quantity_string": _is_quantity,
    "quantity_sign": lambda one: int(one.nano > 0) - int(one.nano < 0),
    "quantity_is_greater_than": lambda one, other: one.nano > other.nano,
    "quantity_is_less_than": lambda one, other: one.nano < other.nano,
    "quantity_compare_to": _order,
    "quantity_get_float": lambda one: one.nano / NANO,
    "quantity_get_int": _as_integer,
    "quantity_is_integer": lambda one: one.integer is not None,
    "quantity_add": lambda one, other: _sum(one, other, 1),
    "quantity_add_int": lambda one, number: _sum(one, _whole(number), 1),
    "quantity_sub": lambda one, other: _sum(one, other, -1),
    "quantity_sub_int": lambda one, number: _sum(one, _whole(number), -1),
}
