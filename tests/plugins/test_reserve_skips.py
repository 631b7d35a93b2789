"""VolumeBinding and DynamicResources answer SKIP at Reserve where they hold nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from berth_host.explain.diagnosis import Diagnosis
from berth_plugins.dynamic_resources.plugin import DynamicResources
from berth_plugins.volumes.volume_binding.plugin import VolumeBinding
from berth_sdk.status import Code
from berth_sdk.testing import PluginHost, make_node, make_pod
from support.hosts import World, node, pod
from support.plugin_processes import plugin_process

NAMES = ("VolumeBinding", "DynamicResources")
BOUND_CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {
        "name": "data",
        "namespace": "default",
        "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
    },
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "volumeName": "disk",
        "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}},
    },
    "status": {"phase": "Bound"},
}
VOLUME = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "disk"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/disk"},
        "claimRef": {"namespace": "default", "name": "data"},
    },
}


@pytest.mark.parametrize("cls", [VolumeBinding, DynamicResources])
def test_plugin_holds_nothing_for_a_pod_that_has_nothing_to_bind(cls: type) -> None:
    attempt = PluginHost(cls, nodes=[make_node("n0")]).attempt(make_pod("web"))
    attempt.pre_filter()
    attempt.filter()
    assert attempt.reserve("n0").code is Code.SKIP
    assert attempt.holds_nothing
    assert attempt.state.token is None
    # What a host would have asked next says the same: nothing to do, nothing to give back.
    assert attempt.pre_bind_pre_flight("n0").status.code is Code.SKIP
    attempt.unreserve("n0")


def using(name: str) -> dict[str, Any]:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    return pod(name, volumes=[volume])


@pytest.mark.slow
@pytest.mark.parametrize("where", ["in process", "served"])
async def test_pod_whose_claim_is_bound_costs_no_call_after_reserve(where: str, tmp_path: Path) -> None:
    attempts: list[Diagnosis] = []
    objects = [node("n0"), VOLUME, BOUND_CLAIM, using("web")]
    if where == "in process":
        async with World(objects, on_attempt=attempts.append) as world:
            await world.settle()
            assert world.node_of("web") == "n0"
        # Its claims are no concern of DynamicResources, which is not even asked.
        assert attempts[-1].reserve_skipped == ("VolumeBinding",)
        assert not {point for name, point in attempts[-1].timings_s if name in NAMES} & {
            "PreBind",
            "PostBind",
        }
        return
    async with plugin_process(tmp_path / "p.sock", *NAMES) as process:
        places = "".join(
            f"- {{name: {name}, endpoint: '{process.endpoint}', required: true,"
            " points: {preFilter: {deadline: 10s}, filter: {deadline: 10s}}}\n"
            for name in NAMES
        )
        configuration = (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
            "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
            f"plugins:\n{places}"
        )
        async with World(objects, configuration=configuration, on_attempt=attempts.append) as world:
            await world.settle()
            assert world.node_of("web") == "n0"
        assert set(attempts[-1].reserve_skipped) == set(NAMES)
        assert not {point for name, point in attempts[-1].timings_s if name in NAMES} & {
            "PreBind",
            "PostBind",
        }
