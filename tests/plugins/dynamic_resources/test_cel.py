"""CEL expressions over a device: their data, and their errors."""

from __future__ import annotations

import pytest
from berth_plugins.cel.errors import CelError
from berth_plugins.dynamic_resources.cel import Expression
from berth_plugins.dynamic_resources.devices import Device, Slice
from berth_sdk.kube_object import KubeObject
from support.device_objects import DRIVER, device, resource_slice

ATTRIBUTES = {
    "model": {"string": "big"},
    "index": {"int": 3},
    "ready": {"bool": True},
    "other.com/driver": {"version": "1.2.3-rc.1"},
}
MINE = f'device.attributes["{DRIVER}"]'
MEMORY = f'device.capacity["{DRIVER}"].memory'


def the_device() -> Device:
    raw = resource_slice("n1", [device("d0", memory="40Gi", attributes=ATTRIBUTES)])
    return Slice.of(KubeObject.of(raw)).devices[0]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (f'device.driver == "{DRIVER}" && {MINE}.model == "big"', True),
        (f"{MINE}.ready", True),
        (f"{MINE}.index in [1, 2]", False),
        (f'{MINE}.model.matches("^b") && {MINE}.model.upperAscii() == "BIG"', True),
        (f'cel.bind(mine, {MINE}, mine.model == "big" && mine.index > 2)', True),
        (f'{MINE}.exists(name, name == "index")', True),
        (f"has({MINE}.missing)", False),
        (f"{MINE}.?missing.orValue(7) == 7", True),
        ("!device.allowMultipleAllocations", True),
        # A domain without attributes of the device is empty for a lookup, and `in` does not find it.
        ('has(device.attributes["other.org"].x)', False),
        ('"other.org" in device.attributes', False),
        ('"other.com" in device.attributes', True),
        ('device.attributes[device.driver].model == "big"', True),
        ('"device.attributes[" == "x"', False),
        (f'{MEMORY}.compareTo(quantity("40960Mi")) == 0', True),
        (f'{MEMORY}.isGreaterThan(quantity("39Gi")) && !{MEMORY}.isLessThan(quantity("1"))', True),
        ('quantity("1Gi").add(quantity("1Gi")) == quantity("2Gi")', True),
        ('quantity("1500m").sub(1).isInteger() || quantity("3").asInteger() == 3', True),
        ('sign(quantity("-1")) == -1 && quantity("1500m").asApproximateFloat() == 1.5', True),
        ('isQuantity("1x")', False),
        ('device.attributes["other.com"].driver.isGreaterThan(semver("1.2.3-beta"))', True),
        ('device.attributes["other.com"].driver.isLessThan(semver("1.2.3"))', True),
        ('semver("10.0.1").major() == 10 && semver("1.0.0").compareTo(semver("1.0.0+x")) == 0', True),
        ('isSemver("1.0")', False),
    ],
)
def test_expressions_are_evaluated_as_by_the_api_server(text: str, want: bool) -> None:
    assert Expression(text).matches(the_device()) is want


@pytest.mark.parametrize("text", ["device.", "unknown == 1", '"text"', '1 == "a"'])
def test_uncompilable_expression_raises(text: str) -> None:
    with pytest.raises(CelError):
        Expression(text)


@pytest.mark.parametrize(
    "text",
    [
        f"{MINE}.missing == 1",
        'device.attributes["other.org"].x == 1',
        f"{MINE}.index",
        'quantity("much") == quantity("1")',
        'quantity("1").major() == 1',
        'semver("1.0.0").compareTo(quantity("1")) == 0',
        'quantity("100Gi").asInteger() / 0 == 1',
        "device.colour == 1",
    ],
)
def test_unevaluable_expression_raises(text: str) -> None:
    with pytest.raises(CelError):
        Expression(text).matches(the_device())


@pytest.mark.parametrize(
    "text",
    [
        'cel.bind(all, device.attributes, has(all["other.org"].x))',
        'has(device.attributes["other." + "org"].x)',
        '["other.org"].exists(domain, has(device.attributes[domain].x))',
        'device.attributes["other.org"].size() > 0',
        'device.capacity["other." + "org"].exists(name, true)',
    ],
)
def test_domain_that_nobody_publishes_is_an_empty_map_however_it_is_reached(text: str) -> None:
    assert not Expression(text).matches(the_device())


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (
            f"{MINE}.missing == 1",
            "no such key: missing. consider using CEL optional chaining (.? followed by orValue()) or "
            "guarding the check with has() for optional fields",
        ),
        (f"{MINE}.index", "CEL result of type int could not be converted to bool: "),
        ("lists.range(1000000).exists(i, i < 0)", "operation cancelled: actual cost limit exceeded"),
        (f"{MINE}.model + {MINE}.index == 1", "no such overload"),
    ],
)
def test_error_of_an_evaluation_has_the_words_of_kube_scheduler(text: str, want: str) -> None:
    with pytest.raises(CelError) as err:
        Expression(text).matches(the_device())
    assert str(err.value).startswith(want)


def test_attributes_with_several_values_are_lists() -> None:
    raw = resource_slice("n1", [device("d0", attributes={"sizes": {"ints": [1, 2]}})])
    (several,) = Slice.of(KubeObject.of(raw)).devices
    assert Expression(f"{MINE}.sizes.includes(2) && {MINE}.sizes.max() == 2").matches(several)


def test_attribute_of_another_kind_is_an_error() -> None:
    raw = resource_slice("n1", [device("d0", attributes={"sizes": {"set": [1]}})])
    (strange,) = Slice.of(KubeObject.of(raw)).devices
    with pytest.raises(CelError, match="attribute sizes: unsupported attribute value"):
        Expression("true").matches(strange)
