"""What the search for a preemption knows about pods: their newest record, and which pods preempt already."""

from __future__ import annotations

from berth_host.app.preemptors import Preemptors
from berth_host.cache.objects import ObjectStores
from berth_host.scheduler.preempting import Preempting
from berth_sdk.pod import Pod
from berth_sdk.testing import make_pod


def known(*pods: Pod) -> tuple[Preemptors, Preempting]:
    """The preemptors among these pods, and the preemptions under way."""
    objects = ObjectStores()
    for pod in pods:
        objects.put_pod(pod)
    preempting = Preempting(objects)
    return Preemptors(objects, preempting), preempting


def test_the_newest_record_of_a_pod_is_that_of_its_uid() -> None:
    popped, changed = make_pod("web", uid="a"), make_pod("web", uid="a", labels={"app": "web"})
    assert known(changed)[0].current(popped) is changed
    assert known(make_pod("web", uid="b"))[0].current(popped) is None
    assert known()[0].current(popped) is None


def test_a_pod_preempts_from_the_beginning_of_its_evictions_to_their_end() -> None:
    preemptors, preempting = known()
    assert not preemptors.is_preempting("a")
    preempting.begin("a")
    assert preemptors.is_preempting("a")
    assert not preemptors.is_preempting("b")
    preempting.end("a")
    assert not preemptors.is_preempting("a")
