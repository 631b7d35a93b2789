"""The families against those recorded from kube-scheduler: name, type, stability, labels, buckets."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.metrics import families
from berth_host.metrics.families import BERTH, EXPOSED, KUBE_SCHEDULER, Family
from support.serving import recorded

RECORDED = recorded("metrics")
BY_NAME = {family.name: family for family in KUBE_SCHEDULER}


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
    assert described(BY_NAME[wanted["name"]]) == {key: wanted[key] for key in compared if key in wanted}


def test_there_are_no_other_families_under_their_prefixes_but_the_older_cache_gauges() -> None:
    assert set(BY_NAME) == {wanted["name"] for wanted in RECORDED["families"]}
    older = {family.name for family in BERTH if not family.name.startswith("berth_")}
    assert older == {f"scheduler_cache_size_{kind}" for kind in ("assumed_pods", "pods", "nodes")}


def test_family_that_needs_a_gate_of_kube_scheduler_is_not_exposed() -> None:
    gated = {
        wanted["name"] for wanted in RECORDED["families"] if "feature gate G" in (wanted.get("when") or "")
    }
    gated |= {wanted["name"] for wanted in RECORDED["families"] if "AsyncAPICalls" in str(wanted["seen"])}
    assert set(BY_NAME) - {family.name for family in EXPOSED} == gated


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
