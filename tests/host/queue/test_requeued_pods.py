"""A change that lets a plugin's Filter accept a waiting pod requeues it: event, handlers, queue and hint.

One change is made to a cluster on which a pod waits, rejected by one plugin that is the only one to filter.
The judge is a host that starts after the change: where that host places the pod, so must the one that waited.
Nothing but the event can requeue the pod: the flush of the unschedulable pods is off.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME
from berth_host.plugins.registry import ClassRegistry, points_of_class
from berth_host.queue.registrations import REJECTING_POINTS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.requeue_objects import Json
from support.requeue_situations import ALL, ALWAYS, WAITER, Key, Situations, Step, may_update, outcome
from support.served import default_plugin_server
from support.tiers import examples

WITHOUT = {
    "NodeName": "a pod that names its node is on that node, and never waits",
    "GangScheduling": "holds members of groups back; see tests/plugins/test_gang_scheduling.py",
    "DefaultPreemption": "holds a pod back until its victims are gone, which its preemptions tell it",
}
"""Default plugins that reject pods and have no situations, and why."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with default_plugin_server(tmp_path_factory.mktemp("served")) as endpoint:
        yield endpoint


@st.composite
def changes(draw: st.DrawFn, situations: Situations) -> tuple[Json, dict[Key, Json], Step]:
    before: dict[Key, Json] = {}
    for key, versions in situations.objects.items():
        item = draw(st.sampled_from(versions if key in ALWAYS else (None, *versions)))
        if item is not None:
            before[key] = item
    if situations.updates and draw(st.integers(0, 3)) == 0:
        old, new = draw(st.sampled_from(situations.updates))
        return old, before, Step(WAITER, old, new)
    key = draw(st.sampled_from(sorted(situations.objects)))
    was = before.get(key)
    others: list[Json | None] = [item for item in situations.objects[key] if item is not was]
    if key not in ALWAYS:
        others = [item for item in (None, *others) if item is not was]
    after = draw(st.sampled_from(others))
    replaced = False
    if was is not None and after is not None and key not in ALWAYS:
        replaced = (key[0] == "pods" and not may_update(was, after)) or draw(st.booleans())
    return draw(st.sampled_from(situations.waiters)), before, Step(key, was, after, replaced)


async def check(situations: Situations, data: st.DataObject, endpoint: str) -> None:
    waiting, before, step = data.draw(changes(situations))
    was_placed, requeued, expected = await outcome(situations, waiting, before, step, endpoint)
    if not was_placed:
        assert requeued == expected, step


@pytest.mark.parametrize("situations", ALL, ids=lambda one: one.title)
@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_a_change_that_lets_the_pod_in_requeues_it(situations: Situations, data: st.DataObject) -> None:
    await check(situations, data, "")


@pytest.mark.parametrize("situations", ALL, ids=lambda one: one.title)
@settings(max_examples=examples(4), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_change_that_lets_the_pod_in_requeues_it_with_a_served_plugin(
    situations: Situations, server: str, data: st.DataObject
) -> None:
    await check(situations, data, server)


def test_every_default_plugin_that_can_reject_a_pod_is_tried() -> None:
    registry = ClassRegistry()
    rejecting = {
        name
        for name in DEFAULT_PLUGINS_BY_NAME
        if (cls := registry.find(name)) is not None and points_of_class(name, cls) & REJECTING_POINTS
    }
    assert {one.plugin for one in ALL} | WITHOUT.keys() == rejecting
    assert not {one.plugin for one in ALL} & WITHOUT.keys()
