"""Which pods change a plugin's verdict about another pod, of the plugins that look at other nodes."""

from __future__ import annotations

from typing import Any, Final

import pytest
from berth_plugins.inter_pod_affinity.plugin import InterPodAffinity
from berth_plugins.pod_topology_spread.plugin import PodTopologySpread
from berth_plugins.volumes.volume_restrictions import VolumeRestrictions
from berth_sdk.testing import make_pod
from support.asking import Plug

WEB: Final = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}
DB: Final = {"labelSelector": {"matchLabels": {"tier": "db"}}, "topologyKey": "zone"}


def required(kind: str, *terms: Any) -> dict[str, Any]:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def spread(when: str) -> dict[str, Any]:
    return {"topologySpreadConstraints": [{**WEB, "maxSkew": 1, "whenUnsatisfiable": when}]}


def mounts(*sources: dict[str, Any]) -> dict[str, Any]:
    return {"volumes": [{"name": f"v{i}", **one} for i, one in enumerate(sources)]}


def disk(name: str) -> dict[str, Any]:
    return {"gcePersistentDisk": {"pdName": name}}


def claim(name: str) -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": name}}


@pytest.mark.parametrize(
    ("cls", "pod", "other", "is_sensitive"),
    [
        (PodTopologySpread, {"spec": spread("DoNotSchedule")}, {"labels": {"app": "web"}}, True),
        (PodTopologySpread, {"spec": spread("DoNotSchedule")}, {"labels": {"app": "db"}}, False),
        (
            PodTopologySpread,
            {"spec": spread("DoNotSchedule")},
            {"labels": {"app": "web"}, "namespace": "b"},
            False,
        ),
        (PodTopologySpread, {"spec": spread("ScheduleAnyway")}, {"labels": {"app": "web"}}, False),
        (PodTopologySpread, {}, {"labels": {"app": "web"}}, False),
        (InterPodAffinity, {"affinity": required("podAffinity", WEB)}, {"labels": {"app": "web"}}, True),
        (InterPodAffinity, {"affinity": required("podAffinity", WEB)}, {}, False),
        (InterPodAffinity, {"affinity": required("podAffinity", WEB, DB)}, {"labels": {"app": "web"}}, False),
        (
            InterPodAffinity,
            {"affinity": required("podAffinity", WEB, DB)},
            {"labels": {"app": "web", "tier": "db"}},
            True,
        ),
        (
            InterPodAffinity,
            {"affinity": required("podAntiAffinity", WEB, DB)},
            {"labels": {"tier": "db"}},
            True,
        ),
        (InterPodAffinity, {"affinity": required("podAntiAffinity", WEB)}, {"labels": {"tier": "db"}}, False),
        (InterPodAffinity, {"labels": {"app": "web"}}, {"affinity": required("podAntiAffinity", WEB)}, True),
        (InterPodAffinity, {"labels": {"app": "db"}}, {"affinity": required("podAntiAffinity", WEB)}, False),
        (InterPodAffinity, {"labels": {"app": "web"}}, {"affinity": required("podAffinity", WEB)}, False),
        (
            InterPodAffinity,
            {
                "affinity": required(
                    "podAntiAffinity", *({**WEB, "topologyKey": f"rack-{i}"} for i in range(65))
                )
            },
            {"labels": {"app": "db"}},
            True,
        ),
        (VolumeRestrictions, {"spec": mounts(disk("a"))}, {"spec": mounts(disk("b"), disk("a"))}, True),
        (VolumeRestrictions, {"spec": mounts(disk("a"))}, {"spec": mounts(disk("b"))}, False),
        (VolumeRestrictions, {"spec": mounts(claim("a"))}, {"spec": mounts(claim("a"))}, True),
        (VolumeRestrictions, {"spec": mounts(claim("a"))}, {"spec": mounts(claim("b"), disk("a"))}, False),
    ],
)
def test_plugin_names_the_pods_that_change_its_verdict(
    cls: type, pod: dict[str, Any], other: dict[str, Any], is_sensitive: bool
) -> None:
    sensitive_to = Plug(cls).runtime().sensitive_to
    assert sensitive_to is not None
    assert sensitive_to(make_pod("pod", **pod), make_pod("other", node="n0", **other)) is is_sensitive
