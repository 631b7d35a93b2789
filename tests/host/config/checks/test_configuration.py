"""Validation of whole configurations: field paths and their order."""

from __future__ import annotations

import pytest
from berth_host.config.errors import ConfigurationError
from berth_host.config.loading import load_configuration

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def rejected(text: str) -> list[tuple[str, str]]:
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(HEADER + text, source="f.yaml", registered={"MySort": frozenset({"queueSort"})})
    assert caught.value.kind == "validation"
    return [(str(f.type).removeprefix("FieldValue"), f.field) for f in caught.value.errors]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("parallelism: -1", [("Invalid", "parallelism")], id="parallelism"),
        pytest.param(
            "leaderElection: {leaseDuration: -1s, retryPeriod: -2s}",
            [
                ("Invalid", "leaderElection.leaseDuration"),
                ("Invalid", "leaderElection.retryPeriod"),
                ("Invalid", "leaderElection.leaseDuration"),
            ],
            id="negative times, lease named twice",
        ),
        pytest.param(
            "leaderElection: {leaseDuration: 10s}",
            [("Invalid", "leaderElection.leaseDuration")],
            id="lease as long as the renewal",
        ),
        pytest.param("podMaxBackoffSeconds: 0", [("Invalid", "podMaxBackoffSeconds")], id="backoff"),
        pytest.param(
            "profiles:\n- {schedulerName: a}\n- {}\n- {schedulerName: a}",
            [("Required", "profiles[1].schedulerName"), ("Duplicate", "profiles[2].schedulerName")],
            id="names",
        ),
        pytest.param(
            "profiles:\n- plugins:\n    bind: {enabled: [{name: A}, {name: EBSLimits}]}\n"
            "    preFilter: {enabled: [{name: CinderLimits}]}",
            [
                ("Invalid", "profiles[0].plugins.preFilter.enabled[0]"),
                ("Invalid", "profiles[0].plugins.bind.enabled[1]"),
            ],
            id="removed plugins",
        ),
        pytest.param(
            "profiles:\n- schedulerName: a\n  plugins: &p {queueSort: {enabled: [{name: MySort}],"
            " disabled: [{name: '*'}]}}\n  pluginConfig: [{name: MySort, args: {x: 1}}]\n"
            "- schedulerName: b\n  plugins: *p\n  pluginConfig: [{name: MySort, args: {x: true}}]",
            [("Invalid", "profiles[1].pluginConfig.args")],
            id="queue sort arguments differ: 1 is not true",
        ),
        pytest.param(
            "extenders:\n- {prioritizeVerb: p, managedResources: [{name: a.b/c}]}\n"
            "- {bindVerb: b, managedResources: [{name: a.b/c}, {name: ''}]}\n- {bindVerb: b}",
            [
                ("Invalid", "extenders[0].weight"),
                ("Invalid", "extenders[1].managedResources[0].name"),
                ("Invalid", "extenders[1].managedResources[1].name"),
                ("Invalid", "extenders[1].managedResources[1].name"),
                ("Invalid", "extenders"),
            ],
            id="extenders",
        ),
    ],
)
def test_rejected_fields_in_order(text: str, want: list[tuple[str, str]]) -> None:
    assert rejected(text) == want


def test_leader_election_is_not_looked_at_while_it_is_off() -> None:
    text = "leaderElection: {leaderElect: false, leaseDuration: -1s, resourceLock: x}"
    assert load_configuration(HEADER + text, source="f").scheduler.leader_election.lease_duration_s == -1
