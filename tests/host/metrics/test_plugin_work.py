"""What the host counts for default plugins, by how their points ended."""

from __future__ import annotations

from berth_host.metrics.plugin_work import PluginWork
from berth_sdk.status import Code, Status


def test_errors_of_plugins_of_volumes_are_counted_by_stage_and_of_other_plugins_not() -> None:
    work, volumes = PluginWork(), {"VolumeBinding"}
    for plugin in ("VolumeBinding", "Other"):
        work.filter_failed(Status(Code.ERROR, ("x",), plugin), volumes)
        work.reserve_failed(Status.error(f'running Reserve plugin "{plugin}": x'), volumes)
        work.pre_bind_failed(Status(Code.ERROR, ("x",), plugin), volumes)
    counted = [work.volume_errors.value((stage,)) for stage in ("predicate", "assume", "bind")]
    assert counted == [1, 1, 1]


def test_only_created_resource_claims_are_counted() -> None:
    work = PluginWork()
    work.created("resource.k8s.io/resourceclaims", False)
    work.created("example.com/widgets", False)
    assert work.claim_creates.value(("false", "", "Pod", "success")) == 1


def test_all_devices_of_a_wait_are_timed_and_those_with_conditions_counted() -> None:
    work = PluginWork()
    results = [{"driver": "a", "bindingConditions": ["Ready"]}, {"driver": "b"}]
    claim = {"status": {"allocation": {"devices": {"results": results}}}}
    work.devices_ended("p", "error", 2.0, [claim, {}])
    assert [(labels, one.total) for labels, one in work.device_waits.items()] == [
        (("a", "p", "error"), 2.0),
        (("b", "p", "error"), 2.0),
    ]
    assert work.device_allocations.value(("a", "p", "error")) == 1
    assert work.device_allocations.value(("b", "p", "error")) == 0
