"""`Refresher`: the last value, its age and its limit, failures, and the end with the plugin."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from berth_sdk import Handle, HandleError, Plugin, PluginArgsError, Refresher, Status
from berth_sdk.testing import PluginHost

FOREVER_S = 3600.0


class Source:
    """A value that the test sets, and the time."""

    def __init__(self) -> None:
        self.value: object = 1
        self.now_s = 0.0
        self.reads = 0
        self.was_read = threading.Semaphore(0)

    def read(self) -> object:
        self.reads += 1
        self.was_read.release()
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def made(source: Source) -> Iterator[Callable[..., Refresher[object]]]:
    """Return a Refresher of the source, after its first read in the background."""
    refreshers: list[Refresher[object]] = []

    def make(**more: Any) -> Refresher[object]:
        options = {"every_s": FOREVER_S, "limit_s": 60.0, "clock": lambda: source.now_s, **more}
        refreshers.append(one := Refresher(source.read, **options))
        assert source.was_read.acquire(timeout=10)
        one.refresh()
        return one

    yield make
    for one in refreshers:
        one.close()


def test_value_is_read_in_the_background_again_and_again(source: Source, made: Any) -> None:
    one = made(every_s=0.001)
    for _ in range(3):
        assert source.was_read.acquire(timeout=10)
    assert one.value == 1


def test_value_older_than_the_limit_is_not_used(source: Source, made: Any) -> None:
    one = made()
    source.now_s = 60.0
    assert (one.value, one.age_s) == (1, 60.0)
    source.now_s = 60.5
    assert (one.value, one.age_s) == (None, 60.5)
    assert one.refresh() == 1
    assert one.age_s == 0.0


def test_read_that_fails_leaves_the_value_and_is_logged_once(
    source: Source, made: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one = made()
    source.value, source.now_s = OSError("no route to host"), 10.0
    with caplog.at_level(logging.INFO):
        assert one.refresh() == 1
        assert one.refresh() == 1
        assert str(one.error) == "no route to host"
        source.value = 2
        assert one.refresh() == 2
    assert one.error is None
    assert [record.getMessage() for record in caplog.records] == [
        "a value from outside cannot be read: OSError: no route to host",
        "a value from outside can be read again",
    ]


def test_changed_is_called_for_a_value_that_differs_or_was_too_old(source: Source, made: Any) -> None:
    seen: list[object] = []
    one = made(changed=lambda: seen.append(source.value))
    assert seen == [1]
    one.refresh()
    source.value = 2
    one.refresh()
    assert seen == [1, 2]
    source.now_s = 61.0
    one.refresh()
    assert seen == [1, 2, 2]


def test_host_that_cannot_be_reached_when_the_value_changes_is_no_error(source: Source, made: Any) -> None:
    def away() -> None:
        raise HandleError("the host is away")

    assert made(changed=away).value == 1


def test_nothing_is_read_after_close(source: Source, made: Any) -> None:
    one = made()
    one.close()
    one.close()
    reads, source.value = source.reads, 2
    assert one.is_closed
    assert one.refresh() == 1
    assert source.reads == reads


@pytest.mark.parametrize(("every_s", "limit_s"), [(0, 1), (1, -1)])
def test_times_that_are_not_above_0_are_refused(source: Source, every_s: float, limit_s: float) -> None:
    with pytest.raises(ValueError, match="both must be above 0"):
        Refresher(source.read, every_s=every_s, limit_s=limit_s)


class Reads(Plugin):
    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self.load = Refresher(lambda: 1, every_s=FOREVER_S, limit_s=60)

    def reserve(self, state: Any, pod: Any, node_name: str) -> Status:
        return Status.success()


def test_refresher_of_a_plugin_that_refuses_its_arguments_is_closed() -> None:
    made: list[Refresher[int]] = []

    class Refuses(Reads):
        def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
            super().__init__(args, handle)
            made.append(self.load)
            raise PluginArgsError("server: is missing")

    with pytest.raises(PluginArgsError):
        PluginHost(Refuses)
    assert made[0].is_closed


class Closes(Reads):
    closed_first = False

    def close(self) -> None:
        self.closed_first = not self.load.is_closed
        raise RuntimeError("no connection")


class ClosesAsync(Reads):
    closed_first = False

    async def close(self) -> None:
        self.closed_first = not self.load.is_closed


def test_refresher_of_a_plugin_without_close_is_closed_with_it() -> None:
    host = PluginHost(Reads)
    plugin: Any = host.runtime.plugin
    assert host.runtime.has_close
    host.close()
    assert plugin.load.is_closed


@pytest.mark.parametrize("cls", [Closes, ClosesAsync])
def test_refresher_is_closed_after_the_plugins_own_close_even_if_that_raises(cls: type) -> None:
    host = PluginHost(cls)
    plugin: Any = host.runtime.plugin
    if cls is Closes:
        with pytest.raises(RuntimeError, match="no connection"):
            host.close()
    else:
        host.close()
    assert plugin.closed_first
    assert plugin.load.is_closed


def test_values_that_cannot_be_compared_count_as_changed() -> None:
    told: list[int] = []
    load = Refresher(lambda: np.array([1, 2]), every_s=60, limit_s=60, changed=lambda: told.append(1))
    try:
        load.refresh()
        load.refresh()
    finally:
        load.close()
    assert len(told) >= 2
