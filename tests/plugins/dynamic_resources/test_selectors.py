"""The cache of selectors: each is evaluated once per device, in bounded memory."""

from __future__ import annotations

import pytest
from berth_plugins.cel.environment import Program
from berth_plugins.dynamic_resources import selectors
from berth_plugins.dynamic_resources.devices import Device, Slice
from berth_plugins.dynamic_resources.requests import Request, requests_of
from berth_plugins.dynamic_resources.search import AllocationError
from berth_plugins.dynamic_resources.selectors import SelectorCache
from berth_sdk.kube_object import KubeObject
from support.device_objects import claim, device, device_class, exactly, resource_slice

CLASS = KubeObject.of(device_class())


def the_device(name: str = "d0") -> Device:
    return Slice.of(KubeObject.of(resource_slice("n1", [device(name, "big", "40Gi")]))).devices[0]


def asking_for(text: str) -> Request:
    spec = claim("c", exactly(selectors=[{"cel": {"expression": text}}]))["spec"]
    return requests_of(spec)[0].alternatives[0]


def admits(cache: SelectorCache, text: str, one: Device) -> bool:
    return cache.admits("default/c", asking_for(text), CLASS, one)


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The costs of all evaluations, -1 for those that fail."""
    costs: list[int] = []
    evaluate = Program.evaluate

    def counted(program: Program, *values: object) -> tuple[object, int]:
        costs.append(-1)
        found = evaluate(program, *values)
        costs[-1] = found[1]
        return found

    monkeypatch.setattr(Program, "evaluate", counted)
    return costs


def test_a_selector_is_evaluated_once_for_each_device(evaluated: list[int]) -> None:
    cache, one, other = SelectorCache(), the_device(), the_device("d1")
    assert all(admits(cache, "lists.range(50).all(x, x >= 0)", device) for device in (one, other, one, other))
    assert len(evaluated) == 2


def test_an_error_is_not_evaluated_again(evaluated: list[int]) -> None:
    cache, one, said = SelectorCache(), the_device(), set()
    for _ in range(2):
        with pytest.raises(AllocationError, match=r"selector #0 on device .*divi") as caught:
            admits(cache, "1 / (size(device.driver) - size(device.driver)) == 1", one)
        said.add(str(caught.value))
    assert evaluated == [-1]
    assert len(said) == 1


def test_compiled_expressions_are_bounded_by_the_bytes_of_their_text(
    evaluated: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selectors, "_MAX_BYTES", 100)
    cache, one = SelectorCache(), the_device()
    texts = [f'"{"é" * 20}" != "{i}"' for i in range(4)]  # 50 bytes each
    for text in (*texts, texts[3], texts[2]):
        assert admits(cache, text, one)
    assert len(evaluated) == 4
    assert admits(cache, texts[0], one)
    assert len(evaluated) == 5
    for _ in range(2):
        assert admits(cache, f'"{"x" * 200}" != ""', one)  # larger than the bound: kept alone
    assert len(evaluated) == 6
