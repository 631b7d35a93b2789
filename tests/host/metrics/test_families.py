"""The families against those recorded from kube-scheduler 1.36, and against the list of what 1.37 changed:
name, type, stability, labels, buckets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from berth_host.config.emulation import EMULATIONS, METRICS_1_37
from berth_host.config.gate_tables import KNOWN_GATES
from berth_host.metrics import families
from berth_host.metrics.families import BERTH, KUBE_SCHEDULER
from berth_host.metrics.family import Family, exponential
from berth_host.metrics.group_families import GROUP_FAMILIES
from berth_host.metrics.scheduler_metrics import SchedulerMetrics
from support.serving import recorded

RECORDED = recorded("metrics")
BY_NAME = {family.name: family for family in KUBE_SCHEDULER}


def of_version(changes: Iterable[tuple[str, Family | None]]) -> dict[str, Family]:
    """Return kube-scheduler's families by name, with the changes of a version."""
    all_families = {**BY_NAME, families.CLAIM_CREATES_1_36.name: families.CLAIM_CREATES_1_36}
    found = {**all_families, **dict(changes)}
    return {name: family for name, family in found.items() if family is not None}


OF_1_36 = of_version(EMULATIONS["1.36"].metrics.items())
OF_1_37 = of_version(METRICS_1_37.items())


def described(family: Family) -> dict[str, Any]:
    """Return a family in the form of the recording."""
    found: dict[str, Any] = {
        "name": family.name,
        "type": family.kind.value,
        "stability": family.stability,
        "labels": sorted(family.labels),
    }
    if family.buckets:
        found["buckets"] = [*family.buckets, "+Inf"]
    return found


@pytest.mark.parametrize("wanted", RECORDED["families"], ids=lambda wanted: str(wanted["name"]))
def test_metric_family_equals_the_recorded_one_of_kube_scheduler(wanted: dict[str, Any]) -> None:
    compared = ("name", "type", "stability", "labels", "buckets")
    assert described(OF_1_36[wanted["name"]]) == {key: wanted[key] for key in compared if key in wanted}


def test_there_are_no_other_families_under_their_prefixes_but_the_older_cache_gauges() -> None:
    assert set(OF_1_36) == {wanted["name"] for wanted in RECORDED["families"]}
    older = {family.name for family in BERTH if not family.name.startswith("berth_")}
    assert older == {f"scheduler_cache_size_{kind}" for kind in ("assumed_pods", "pods", "nodes")}


def test_family_that_needs_a_gate_of_kube_scheduler_has_that_gate() -> None:
    recorded_as_gated = {
        wanted["name"] for wanted in RECORDED["families"] if "feature gate G" in (wanted.get("when") or "")
    }
    recorded_as_gated |= {
        wanted["name"] for wanted in RECORDED["families"] if "AsyncAPICalls" in str(wanted["seen"])
    }
    assert {name for name, family in OF_1_36.items() if family.gate} == recorded_as_gated
    assert all(family.gate in KNOWN_GATES for family in KUBE_SCHEDULER if family.gate)


ADDED_IN_1_37: dict[str, tuple[str, str, set[str], tuple[float, ...], str]] = {
    "scheduler_batch_rescore_attempts_total": ("counter", "ALPHA", {"profile"}, (), ""),
    "scheduler_batch_rescore_duration_seconds": (
        *("histogram", "ALPHA", {"profile"}),
        *(exponential(0.00001, 2, 12), ""),
    ),
    "scheduler_queued_entities": ("gauge", "ALPHA", {"queue", "type"}, (), ""),
    "scheduler_queue_incoming_entities_total": ("counter", "ALPHA", {"queue", "event", "type"}, (), ""),
    "scheduler_pre_queueing_hint_evaluations_total": ("counter", "ALPHA", {"plugin", "result"}, (), ""),
    "dynamic_resource_allocation_resourceclaim_creates_total": (
        *("counter", "ALPHA"),
        *({"status", "admin_access", "owner_api_group", "owner_api_kind"}, (), ""),
    ),
    "scheduler_workload_preemption_attempts_total": ("counter", "ALPHA", {"result"}, (), "GenericWorkload"),
    "scheduler_workload_preemption_victims": (
        *("histogram", "ALPHA", set[str]()),
        *(exponential(1.0, 2, 11), "GenericWorkload"),
    ),
    "scheduler_preemption_workload_disruptions": (
        *("histogram", "ALPHA", {"preemptor"}),
        *(exponential(1.0, 2, 11), "GenericWorkload"),
    ),
    "scheduler_preemption_evaluation_duration_seconds": (
        *("histogram", "ALPHA", {"preemptor", "result"}),
        *(exponential(0.001, 2, 16), "GenericWorkload"),
    ),
    "scheduler_preemption_execution_duration_seconds": (
        *("histogram", "ALPHA", {"preemptor", "result"}),
        *(exponential(0.001, 2, 16), "GenericWorkload"),
    ),
    "scheduler_preemption_pdb_violations_total": ("counter", "ALPHA", {"preemptor"}, (), "GenericWorkload"),
    "scheduler_generated_placements_total": (
        *("counter", "ALPHA", {"profile"}, ()),
        "TopologyAwareWorkloadScheduling",
    ),
    "scheduler_placement_evaluations_total": (
        *("counter", "ALPHA", {"result", "profile"}, ()),
        "TopologyAwareWorkloadScheduling",
    ),
    "scheduler_placement_evaluation_duration_seconds": (
        *("histogram", "ALPHA", {"result", "profile"}, exponential(0.001, 2, 15)),
        "TopologyAwareWorkloadScheduling",
    ),
}
"""Source: kube-scheduler v1.37.2 `metrics/metrics.go`, dynamic-resource-allocation v0.37.2
`resourceclaim/metrics/metrics.go`: type, stability, labels, buckets, gate.
"""


def test_families_that_1_37_added_are_those_of_its_source() -> None:
    added = OF_1_37.keys() - OF_1_36.keys()
    assert {
        name: (
            OF_1_37[name].kind.value,
            OF_1_37[name].stability,
            set(OF_1_37[name].labels),
            OF_1_37[name].buckets,
            OF_1_37[name].gate,
        )
        for name in added
    } == ADDED_IN_1_37


def test_families_that_1_37_changed_or_removed_are_those_of_its_source() -> None:
    assert OF_1_36.keys() - OF_1_37.keys() == {"scheduler_resourceclaim_creates_total"}
    changed = {name for name in OF_1_36.keys() & OF_1_37.keys() if OF_1_36[name] != OF_1_37[name]}
    assert changed == {
        "scheduler_plugin_execution_duration_seconds",
        "scheduler_scheduling_algorithm_duration_seconds",
        "scheduler_preemption_goroutines_duration_seconds",
    }
    assert OF_1_37["scheduler_plugin_execution_duration_seconds"].stability == "BETA"
    assert OF_1_37["scheduler_scheduling_algorithm_duration_seconds"].stability == "BETA"
    deprecated = OF_1_37["scheduler_preemption_goroutines_duration_seconds"]
    assert deprecated.text.startswith("[ALPHA] (Deprecated since 1.37.0) ")


def test_family_with_a_gate_is_shown_while_the_gate_is_on() -> None:
    metrics = SchedulerMetrics()
    gated = {family.name for family in GROUP_FAMILIES}
    assert not gated & {source.family.name for source in metrics.sources}

    metrics.expose(lambda gate: gate == "GenericWorkload", METRICS_1_37)
    of_groups = {family.name for family in GROUP_FAMILIES if family.gate == "GenericWorkload"}
    assert gated & {source.family.name for source in metrics.sources} == of_groups

    metrics.expose(lambda gate: True, EMULATIONS["1.36"].metrics)
    shown = {source.family.name: source.family for source in metrics.sources}
    assert gated & shown.keys() == {name for name in gated if "podgroup" in name}
    assert shown["scheduler_plugin_execution_duration_seconds"].text.startswith("[ALPHA] ")
    assert "scheduler_queue_incoming_entities_total" not in shown


@pytest.mark.parametrize(
    ("family", "wanted"),
    [
        (families.POD_REQUEST, RECORDED["metricsResources"][0]),
        (families.POD_LIMIT, RECORDED["metricsResources"][1]),
        (families.HEALTH_CHECK, RECORDED["metricsSlis"][0]),
        (families.HEALTH_CHECKS, RECORDED["metricsSlis"][1]),
    ],
)
def test_families_of_metrics_resources_and_slis_equal_the_recorded_ones(
    family: Family, wanted: dict[str, Any]
) -> None:
    assert described(family) == {key: wanted[key] for key in ("name", "type", "stability", "labels")}
