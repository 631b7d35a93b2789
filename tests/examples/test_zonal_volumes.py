"""ZonalVolumes under the whole host, in process and served: volumes in the right zone, none left behind."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from berth_host.attach import retrying
from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import PluginArgsError
from berth_sdk.pod import Pod
from berth_sdk.results import PatchResult, PermitResult
from berth_sdk.status import SUCCESS, Status
from berth_sdk.testing import PluginHost, make_node, make_pod
from support.commands import in_process
from support.examples import EXAMPLES, example
from support.hosts import World, node, pod
from support.plugin_processes import PluginProcess
from support.waiting import until

zonal: Any = example("zonal_volumes/zonal_volumes.py")
ZONE = "topology.kubernetes.io/zone"
MI = 2**20


@pytest.fixture(autouse=True)
def back_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attachments are tried again within a tenth of a second."""
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    monkeypatch.setattr(retrying, "MAX_S", 0.1)


class Hold:
    """Holds pods with the label `hold` at Permit, and rejects those with `deny` at PreBind, when they have
    their volume.
    """

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        return PermitResult.wait() if pod.labels.get("hold") else SUCCESS

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str, patched: list[PatchResult]) -> Status:
        return Status.unschedulable("denied") if pod.labels.get("deny") else SUCCESS


def configuration(root: Path, process: PluginProcess | None = None) -> str:
    scheduler, own = in_process(ZonalVolumes="example_zonal_volumes:ZonalVolumes", Hold="")
    own["plugins"] = own["plugins"][:1]
    capacity = {"zone-a": "4Mi", "zone-b": "2Mi"}
    scheduler["profiles"][0]["pluginConfig"] = [
        {"name": "ZonalVolumes", "args": {"root": str(root), "capacity": capacity}}
    ]
    if process is not None:
        (plugin,) = own["plugins"]
        del plugin["inProcess"]
        plugin["endpoint"] = process.endpoint
        own["cycleBudget"] = "60s"
        plugin["points"] = {
            point: {"deadline": "10s"} for point in ("preFilter", "filter", "reserve", "unreserve", "preBind")
        }
    return str(yaml.safe_dump_all([scheduler, own]))


@asynccontextmanager
async def world_with(
    tmp_path: Path, objects: list[dict[str, Any]], way: str
) -> AsyncIterator[tuple[World, PluginProcess | None]]:
    root = tmp_path / "volumes"
    if way == "in process":
        async with World(objects, [Hold], configuration=configuration(root)) as world:
            yield world, None
        return
    process = PluginProcess(
        tmp_path / "p.sock",
        "zonal_volumes:ZonalVolumes",
        environment={"PYTHONPATH": str(EXAMPLES / "zonal_volumes")},
    )
    try:
        await process.start()
        async with World(objects, [Hold], configuration=configuration(root, process)) as world:
            yield world, process
    finally:
        await process.kill()


def nodes() -> list[dict[str, Any]]:
    zones = {"a": "zone-a", "b": "zone-b", "other": "zone-c"}
    return [*(node(name, labels={ZONE: zone}) for name, zone in zones.items()), node("nowhere")]


def wanting(name: str, size: str, **more: Any) -> dict[str, Any]:
    made = pod(name, **more)
    made["metadata"]["annotations"] = {zonal.SIZE: size}
    return made


def volumes(tmp_path: Path) -> dict[str, dict[str, int]]:
    """Return the bytes of the volumes on the disk, by zone and pod uid."""
    root = tmp_path / "volumes"
    return {zone.name: {v.name: v.stat().st_size for v in zone.iterdir()} for zone in root.iterdir()}


WAYS = pytest.mark.parametrize("way", ["in process", "served"])


@WAYS
async def test_each_pod_gets_its_volume_in_the_zone_of_its_node(tmp_path: Path, way: str) -> None:
    objects = [*nodes(), *(wanting(f"p{i}", "2Mi") for i in range(4)), pod("plain")]
    async with world_with(tmp_path, objects, way) as (world, _):
        await world.settle()
        placed = {item.ref.name: item for item in world.server.list("pods")}
        assert placed["plain"].get("spec.nodeName")
        assert zonal.PATH not in placed["plain"].get("metadata.annotations", {})
        bound = [placed[f"p{i}"] for i in range(4) if placed[f"p{i}"].get("spec.nodeName")]
        assert sorted(item.get("spec.nodeName") for item in bound) == ["a", "a", "b"]
        for item in bound:
            path = Path(item.get("metadata.annotations")[zonal.PATH])
            assert path == tmp_path / "volumes" / f"zone-{item.get('spec.nodeName')}" / item.ref.uid
            assert path.stat().st_size == 2 * MI
        assert sum(map(len, volumes(tmp_path).values())) == 3
        (left,) = (item for name, item in placed.items() if name != "plain" and item not in bound)
        message = left.get("status.conditions")[0]["message"]
        assert "2 the node's zone has too little room for the volume" in message
        assert "2 no volumes can be made in the node's zone" in message


@WAYS
async def test_volume_of_a_pod_that_is_not_bound_after_all_is_taken_back(tmp_path: Path, way: str) -> None:
    objects = [*nodes(), wanting("p", "2Mi", labels={"deny": "y"})]
    async with world_with(tmp_path, objects, way) as (world, _):
        await world.settle()
        (item,) = world.server.list("pods")
        assert not item.get("spec.nodeName")
        assert zonal.PATH in item.get("metadata.annotations"), "it had been made"
        assert volumes(tmp_path) == {"zone-a": {}, "zone-b": {}}


@WAYS
async def test_room_of_a_deleted_pod_is_used_again(tmp_path: Path, way: str) -> None:
    objects = [*nodes(), wanting("first", "4Mi"), wanting("second", "3Mi")]
    async with world_with(tmp_path, objects, way) as (world, _):
        await world.settle()
        (bound,) = (item for item in world.server.list("pods") if item.get("spec.nodeName"))
        (waiting,) = (item for item in world.server.list("pods") if not item.get("spec.nodeName"))
        world.server.delete("pods", bound.ref)
        await world.settle()
        assert volumes(tmp_path)["zone-a"].keys() == {waiting.ref.uid}


async def test_kill_9_between_reserve_and_pre_bind_makes_each_volume_once(tmp_path: Path) -> None:
    objects = [*nodes(), wanting("held", "4Mi", labels={"hold": "y"})]
    async with world_with(tmp_path, objects, "served") as (world, process):
        assert process is not None
        await until(lambda: len(world.host.waiting_pods) == 1 and not world.host.binding.active_count)
        before = world.host.attachments.recoveries
        await process.kill()
        await process.start()
        await until(lambda: world.host.attachments.recoveries > before)
        assert volumes(tmp_path) == {"zone-a": {}, "zone-b": {}}, "nothing is made before PreBind"
        for held in world.host.waiting_pods.list("Hold"):
            world.host.waiting_pods.allow("Hold", held.pod.uid, held.cycle_id)
        await world.settle()
        (item,) = world.server.list("pods")
        assert item.get("spec.nodeName") == "a"
        assert volumes(tmp_path) == {"zone-a": {item.ref.uid: 4 * MI}, "zone-b": {}}


def host_with(tmp_path: Path, **args: Any) -> PluginHost:
    told = {"root": str(tmp_path / "volumes"), "capacity": {"zone-a": "4Mi"}} | args
    return PluginHost(zonal.ZonalVolumes, told, nodes=[make_node("a", labels={ZONE: "zone-a"})])


def test_full_disk_rejects_the_pod_and_leaves_no_half_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    attempt = host_with(tmp_path).attempt(make_pod("p", uid="u1", annotations={zonal.SIZE: "1Mi"}))
    attempt.pre_filter()
    status = attempt.place("a")
    assert (status.code.name, status.message) == (
        "UNSCHEDULABLE",
        "no volume could be made in zone-a: No space left on device",
    )
    assert volumes(tmp_path) == {"zone-a": {}}


@pytest.mark.parametrize(
    ("size", "says"),
    [
        ("much", "annotation volume.example.com/size"),
        ("0", "must be above zero"),
        ("-1", "must be above zero"),
    ],
)
def test_malformed_size_is_refused(tmp_path: Path, size: str, says: str) -> None:
    attempt = host_with(tmp_path).attempt(make_pod("p", uid="u1", annotations={zonal.SIZE: size}))
    assert says in attempt.pre_filter().status.message


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"capacity": {}}, "capacity: must give"),
        ({"capacity": {"zone-a": "lots"}}, "capacity: "),
        ({"root": ""}, "root: must be"),
        ({"root": "/dev/null/x"}, "root: "),
    ],
    ids=["no zone", "no quantity", "no root", "no folder"],
)
def test_malformed_arguments_are_refused(tmp_path: Path, args: dict[str, Any], says: str) -> None:
    with pytest.raises(PluginArgsError, match=says):
        host_with(tmp_path, **args)


async def test_pod_gets_the_room_of_one_that_was_deleted_before_its_post_bind(tmp_path: Path) -> None:
    handles: list[Any] = []

    class Kept(zonal.ZonalVolumes):  # type: ignore[misc]  # the example is loaded by its path
        def __init__(self, args: Any, handle: Any) -> None:
            super().__init__(args, handle)
            handles.append(handle)

    host = PluginHost(
        Kept,
        {"root": str(tmp_path), "capacity": {"zone-a": "2Mi"}},
        nodes=[make_node("a", labels={ZONE: "zone-a"})],
    )
    first, second = (
        host.attempt(make_pod(name, uid=f"uid-{name}", annotations={zonal.SIZE: "2Mi"}))
        for name in ("first", "second")
    )
    plain = host.attempt(make_pod("plain"))
    assert plain.place("a").is_success
    (handle,) = handles
    assert handle.requeues == []  # a pod without a volume gives nothing back
    with host.hold_snapshot():
        first.pre_filter()
        assert first.place("a").is_success
        host.remove_pod(first.pod)
        second.pre_filter()
        assert "too little room" in second.filter("a")["a"].message
        assert handle.requeues == []
    assert [one.reason for one in handle.requeues] == ["a volume may be free"]
    second.pre_filter()
    assert second.filter("a")["a"].is_success
