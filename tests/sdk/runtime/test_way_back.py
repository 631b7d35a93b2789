"""Which classes call their host."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk import Plugin
from berth_sdk.runtime.descriptor import describe
from berth_sdk.runtime.way_back import WAY_BACK, calls_host


class Allows(Plugin):
    def permit(self, state: Any, pod: Any, node_name: Any) -> Any:
        for waiting in self.handle.waiting_pods():
            self.handle.allow(waiting)


class Inherits(Allows):
    """Its base calls the host."""


class Keeps:
    def __init__(self, args: Any, handle: Any) -> None:
        self.host = handle

    def filter(self, state: Any, pod: Any, node: Any) -> Any:
        return [self.host.requeue() for _ in range(1)]


class Denies(Allows):
    handle_required = False


@pytest.mark.parametrize(("cls", "want"), [(Allows, True), (Inherits, True), (Keeps, True), (Denies, False)])
def test_class_that_calls_its_host_requires_the_way_back(cls: type, want: bool) -> None:
    assert describe(cls).handle_required is want


def test_names_of_calls_are_those_of_the_handle() -> None:
    assert {"allow", "reject", "requeue", "invalidate_sort_keys"} <= WAY_BACK
    assert not {"objects", "snapshot"} & WAY_BACK


def test_class_that_reads_the_local_copy_alone_does_not() -> None:
    source = "class Reads:\n    def filter(self, state, pod, node):\n        self.handle.objects('x')\n"
    names: dict[str, Any] = {"__name__": "nowhere"}
    exec(source, names)  # a module of its own
    assert calls_host(names["Reads"]) is False
