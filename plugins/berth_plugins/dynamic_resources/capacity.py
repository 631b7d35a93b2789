"""How much of a device's capacity a request takes, and whether that much is left.

Amounts are billionths.

Source: KEP-5075;
`dynamic-resource-allocation/structured/internal/experimental/allocator_consumable_capacity.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from berth_plugins.dynamic_resources.devices import Capacity, Device
from berth_plugins.dynamic_resources.requests import Request

_NANO: Final = 10**9
_BINARY: Final = ((60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki"))
Amount = tuple[int, str]
"""Billionths, and the API's text for them."""


def consumed(request: Request, device: Device) -> dict[str, Amount]:
    """Return the amount that the request takes of each capacity of the device."""
    wanted = request.capacity or {}
    return {name: _consumed(wanted.get(name), capacity) for name, capacity in device.capacity.items()}


def fits(request: Request, device: Device, given: Mapping[str, int], chosen: Mapping[str, int]) -> bool:
    """Return True if the request's part is left beside the amounts `given` away and `chosen` in this
    search.
    """
    wanted = request.capacity or {}
    if not wanted.keys() <= device.capacity.keys():
        return False
    for name, capacity in device.capacity.items():
        amount = _consumed(wanted.get(name), capacity)[0]
        if _breaks_policy(amount, capacity):
            return False
        if given.get(name, 0) + chosen.get(name, 0) + amount > capacity.nano:
            return False
    return True


def _consumed(wanted: Amount | None, capacity: Capacity) -> Amount:
    if wanted is None:
        return capacity.default or (capacity.nano, capacity.text)
    if capacity.least is not None:
        return _rounded_to_range(wanted, capacity, capacity.least)
    if capacity.values is not None:
        return next((value for value in capacity.values if wanted[0] <= value[0]), wanted)
    return wanted


def _rounded_to_range(wanted: Amount, capacity: Capacity, least: Amount) -> Amount:
    if wanted[0] < least[0]:
        return least
    if capacity.step_nano is None:
        return wanted
    # Steps are counted in whole units.
    start, step = _whole(least[0]), _whole(capacity.step_nano)
    above = _whole(wanted[0]) - start
    value = start + -(-above // step) * step if step else start + above
    return value * _NANO, _binary(value)


def _breaks_policy(amount: int, capacity: Capacity) -> bool:
    if not capacity.has_policy or (capacity.default is not None and amount == capacity.default[0]):
        return False
    if capacity.has_range:
        if capacity.most_nano is not None and amount > capacity.most_nano:
            return True
        if capacity.step_nano is not None and capacity.least is not None and _whole(capacity.step_nano):
            return (_whole(amount) - _whole(capacity.least[0])) % _whole(capacity.step_nano) != 0
        return False
    return capacity.values is not None and all(amount != value for value, _ in capacity.values)


def _whole(nano: int) -> int:
    return -(-nano // _NANO)


def _binary(value: int) -> str:
    """Return the API's text for a whole number of binary units."""
    for bits, suffix in _BINARY:
        if value and value % (1 << bits) == 0:
            return f"{value >> bits}{suffix}"
    return str(value)
