"""Reading the pod's object without `Need.whole_pod()` is one error, in process, served and in `testing`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from berth_sdk.errors import UndeclaredError
from berth_sdk.extension_points import Plugin
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.results import QueuedPod
from berth_sdk.signature import wishes
from berth_sdk.status import Status
from berth_sdk.testing import PluginHost, make_node, make_pod, pod_object

READINGS: dict[str, Callable[[Any], object]] = {
    "pod.object": lambda pod: pod.object.get("spec.nodeName"),
    "pod.spec": lambda pod: pod.spec,
    "pod.pod_affinity": lambda pod: pod.pod_affinity,
    "pod.volumes": lambda pod: pod.volumes,
    "pod.generated_claims": lambda pod: pod.generated_claims,
}


class Reads(Plugin):
    part = "pod.spec"
    needs: Sequence[Need] = (Need.nodes(),)

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        READINGS[self.part](pod.pod)
        return Status.success()

    def filter(self, state: Any, pod: Pod, node: Any) -> Status:
        READINGS[self.part](pod)
        return Status.success()

    async def score_nodes(self, state: Any, pod: Pod, nodes: Any) -> Any:
        READINGS[self.part](pod)

    def permit(self, state: Any, pod: Pod, node_name: str) -> Status:
        READINGS[self.part](pod)
        return Status.success()


class Whole(Reads):
    needs: Sequence[Need] = (Need.nodes(), Need.whole_pod())


@pytest.mark.parametrize("part", READINGS)
@pytest.mark.parametrize("point", ["pre_enqueue", "filter", "score", "permit"])
def test_undeclared_part_of_the_pod_raises_at_every_point(
    part: str, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reads, "part", part)
    host = PluginHost(Reads, nodes=[make_node("n1")])
    pod = make_pod("web")
    asks: dict[str, Callable[[], object]] = {
        "pre_enqueue": lambda: host.pre_enqueue(pod),
        "filter": lambda: host.attempt(pod).filter(),
        "score": lambda: host.attempt(pod).score(),
        "permit": lambda: host.attempt(pod).permit("n1"),
    }
    with pytest.raises(UndeclaredError) as refused:
        asks[point]()
    assert str(refused.value) == (
        f"Reads reads {part}, which it did not declare: add Need.whole_pod() to `needs`"
    )


def test_plugin_that_declared_the_whole_pod_reads_it() -> None:
    host = PluginHost(Whole, nodes=[make_node("n1")])
    assert host.attempt(make_pod("web")).filter()["n1"].is_success


def test_host_keeps_the_whole_pod_and_signatures_follow_from_the_summary() -> None:
    pod = Pod.from_object(pod_object("web"))
    seen = pod.as_summary()
    assert seen is pod.as_summary() and seen.as_summary() is seen
    assert pod.spec and pod.is_whole and not seen.is_whole
    assert wishes(seen) and seen.on_node("n1").node_name == "n1"


def test_undeclared_objects_and_snapshot_raise_the_same_error() -> None:
    class Permits(Plugin):
        def permit(self, state: Any, pod: Pod, node_name: str) -> Status:
            return Status.success()

    host = PluginHost(Permits)
    plugin: Any = host.runtime.plugin
    with pytest.raises(UndeclaredError, match=r"Permits .*add Need.objects\('services'\)"):
        plugin.handle.objects("services")
    with pytest.raises(UndeclaredError, match=r"Permits .*add Need.nodes\(\)"):
        plugin.handle.snapshot()
