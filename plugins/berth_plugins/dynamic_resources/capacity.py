"""How much of a device's capacity a request takes, and whether that much is left.

Amounts are billionths.

Source: KEP-5075;
`dynamic-resource-allocation/structured/internal/incubating/consumable_capacity.go`, v1.38.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from berth_sdk.errors import BerthError

from berth_plugins.dynamic_resources.devices import Capacity, Device
from berth_plugins.dynamic_resources.requests import Request
from berth_plugins.dynamic_resources.rules import Rules

_NANO: Final = 10**9
_MILLI: Final = 10**6
_MOST: Final = 2**63 - 1
_UNCOUNTABLE: Final = "capacity request cannot be represented in the device's range arithmetic"
_BINARY: Final = ((60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki"))
Amount = tuple[int, str]
"""Billionths, and the API's text for them."""


class AmountError(BerthError):
    """An amount that the scheduler cannot count."""


def full_name(name: str, driver: str) -> str:
    """Return the name with its domain: a name without one belongs to the domain of the driver."""
    return name if "/" in name else f"{driver}/{name}"


def amounts_by_full_name(amounts: Mapping[str, int], driver: str) -> dict[str, int]:
    """Return amounts by full name. Of two that mean the same, the one with the domain counts."""
    by_name = {full_name(name, driver): amount for name, amount in amounts.items()}
    return {name: amounts.get(name, amount) for name, amount in by_name.items()}


def consumed(request: Request, device: Device, rules: Rules) -> dict[str, Amount]:
    """Return the amount that the request takes of each capacity of the device, by the names of the slice.
    Raises AmountError.
    """
    wanted = _wanted(request, device, rules) or {}
    return {
        name: _checked(name, wanted.get(name), capacity, rules)
        for name, capacity in _capacities(device, rules).items()
    }


def counted(amounts: Mapping[str, Amount], device: Device, rules: Rules) -> dict[str, int]:
    """Return the amounts of `consumed` by the names under which `fits` looks for them."""
    driver = device.id.driver
    return {
        full_name(name, driver) if rules.full_names else name: amount for name, (amount, _) in amounts.items()
    }


def fits(
    request: Request, device: Device, given: Mapping[str, int], chosen: Mapping[str, int], rules: Rules
) -> bool:
    """Return True if the request's part is left beside the amounts `given` away and `chosen` in this
    search.

    Raises AmountError for an amount that cannot be counted, if the rules are strict, and for a capacity that
    is requested by both of its names.
    """
    if _wanted(request, device, rules) is None:
        return False
    amounts = consumed(request, device, rules)
    capacities = _capacities(device, rules)
    if any(_breaks_policy(amounts[name][0], capacity, rules) for name, capacity in capacities.items()):
        return False
    for name, capacity in capacities.items():
        key = full_name(name, device.id.driver) if rules.full_names else name
        if given.get(key, 0) + chosen.get(key, 0) + amounts[name][0] > capacity.nano:
            return False
    return True


def _capacities(device: Device, rules: Rules) -> Mapping[str, Capacity]:
    """Return the device's capacities. Of two that mean the same, only the one with the domain counts."""
    known = device.capacity
    if not rules.full_names or not any("/" in name for name in known):
        return known
    driver = device.id.driver
    return {
        name: capacity
        for name, capacity in known.items()
        if "/" in name or full_name(name, driver) not in known
    }


def _wanted(request: Request, device: Device, rules: Rules) -> Mapping[str, Amount] | None:
    """Return the requested amounts by the device's names. None: the device lacks one of the capacities."""
    wanted = request.capacity or {}
    known = _capacities(device, rules)
    if not rules.full_names:
        return wanted if wanted.keys() <= known.keys() else None
    if not wanted:
        return wanted
    driver = device.id.driver
    names = {full_name(name, driver): name for name in known}
    found: dict[str, Amount] = {}
    asked: dict[str, str] = {}
    # Sorted: the error for a name that is there twice does not depend on the order in the claim.
    for name, amount in sorted(wanted.items()):
        key = full_name(name, driver)
        if key not in names:
            return None
        if key in asked:
            short = key.partition("/")[2]
            raise AmountError(f'capacity "{short}" requested both as "{asked[key]}" and as "{name}"')
        asked[key] = name
        found[names[key]] = amount
    return found


def _checked(name: str, wanted: Amount | None, capacity: Capacity, rules: Rules) -> Amount:
    try:
        if rules.positive_requests and wanted is not None and wanted[0] < 0:
            # The policy could round a negative request up to a valid one.
            raise AmountError(f"capacity value is negative: request {wanted[1]}")
        amount = _consumed(wanted, capacity, rules)
        if rules.strict_amounts and amount[0] < 0:
            raise AmountError("capacity value is negative")
    except AmountError as err:
        raise AmountError(f'capacity "{name}": {err}') from err
    return amount


def _consumed(wanted: Amount | None, capacity: Capacity, rules: Rules) -> Amount:
    if wanted is None:
        return capacity.default or (capacity.nano, capacity.text)
    if capacity.least is not None:
        return _rounded_to_range(wanted, capacity, capacity.least, rules)
    if capacity.values is not None:
        return next((value for value in capacity.values if wanted[0] <= value[0]), wanted)
    return wanted


def _rounded_to_range(wanted: Amount, capacity: Capacity, least: Amount, rules: Rules) -> Amount:
    if wanted[0] < least[0]:
        return least
    if capacity.step_nano is None:
        return wanted
    if _counts_in_thousandths(capacity, rules):
        if wanted[0] % _MILLI:
            raise AmountError(f"{_UNCOUNTABLE}: request {wanted[1]} is not a representable milli value")
        milli = _stepped(wanted[0] // _MILLI, least[0] // _MILLI, capacity.step_nano // _MILLI)
        if milli > _MOST:
            raise AmountError(
                f"{_UNCOUNTABLE}: rounding request {wanted[1]} up to the next step passes the milli-value"
                " range"
            )
        return milli * _MILLI, _text(milli, 1000, is_binary=capacity.step_is_binary)
    # Steps are counted in whole units.
    start, step = _whole(least[0]), _whole(capacity.step_nano)
    value = _stepped(_whole(wanted[0]), start, step)
    if rules.strict_amounts:
        if wanted[0] > _MOST * _NANO:
            raise AmountError(f"{_UNCOUNTABLE}: request {wanted[1]} exceeds MaxInt64")
        if start >= 0 and value > _MOST:
            raise AmountError(
                f"{_UNCOUNTABLE}: rounding request {wanted[1]} up to the next step passes MaxInt64"
            )
    # Before 1.37 the text has a binary suffix, whatever the step has.
    return value * _NANO, _text(value, 1, is_binary=capacity.step_is_binary or not rules.strict_amounts)


def _stepped(value: int, start: int, step: int) -> int:
    """Return the first of `start`, `start + step`, ... that is at least `value`."""
    return start + -(-(value - start) // step) * step if step else value


def _counts_in_thousandths(capacity: Capacity, rules: Rules) -> bool:
    """Return True if all limits of the range are whole thousandths, and such steps may count."""
    if not rules.fractional_ranges or not capacity.step_nano or capacity.step_nano < _MILLI:
        return False
    least = None if capacity.least is None else capacity.least[0]
    limits = (least, capacity.most_nano, capacity.step_nano)
    return all(one is None or (one % _MILLI == 0 and abs(one) <= _MOST * _MILLI) for one in limits)


def _breaks_policy(amount: int, capacity: Capacity, rules: Rules) -> bool:
    if not capacity.has_policy or (capacity.default is not None and amount == capacity.default[0]):
        return False
    if capacity.has_range:
        if capacity.most_nano is not None and amount > capacity.most_nano:
            return True
        if capacity.step_nano is None or capacity.least is None:
            return False
        if _counts_in_thousandths(capacity, rules):
            return (amount - capacity.least[0]) % capacity.step_nano != 0
        step = _whole(capacity.step_nano)
        return bool(step) and (_whole(amount) - _whole(capacity.least[0])) % step != 0
    return capacity.values is not None and all(amount != value for value, _ in capacity.values)


def _whole(nano: int) -> int:
    return -(-nano // _NANO)


def _text(value: int, parts: int, *, is_binary: bool) -> str:
    """Return the API's text for `value` of `parts` parts of a unit."""
    if value % parts:
        return f"{value}m"
    whole = value // parts
    for bits, suffix in _BINARY if is_binary else ():
        if whole and whole % (1 << bits) == 0:
            return f"{whole >> bits}{suffix}"
    return str(whole)
