"""Settings that a running process cannot take over are named as the file spells them."""

from __future__ import annotations

import pytest
from berth_host.app.process.restart import needs_restart
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.loading import load_configuration


def load(more: str) -> LoadedConfiguration:
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    return load_configuration(head + more, source="test")


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ("", []),
        ("clientConnection: {qps: 7}", ["clientConnection"]),
        ("leaderElection: {resourceName: other}", ["leaderElection"]),
        ("enableProfiling: false", ["enableProfiling", "enableContentionProfiling"]),
        ("delayCacheUntilActive: true", ["delayCacheUntilActive"]),
        (
            "leaderElection: {leaderElect: false}\nclientConnection: {burst: 7}",
            ["clientConnection", "leaderElection"],
        ),
        ("podMaxBackoffSeconds: 20", []),
        ("percentageOfNodesToScore: 20", []),
        ("profiles: [{schedulerName: other}]", []),
    ],
)
def test_fields_that_need_a_restart(more: str, names: list[str]) -> None:
    assert needs_restart(load(""), load(more)) == names
