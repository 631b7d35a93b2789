"""Clusters whose pods are partly in groups, for Hypothesis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.tables import ObjectStore
from berth_sdk.testing import make_pod
from hypothesis import strategies as st
from support.plain_preemption import PlainBudget, PlainNode

LABELS: Final[tuple[dict[str, str], ...]] = ({}, {"app": "web"}, {"app": "db"})
OLD: Final = ("old", "whole", "tree-a", "tree-b")


def store_of(budgets: Sequence[PlainBudget]) -> ObjectStore:
    store = ObjectStore()
    for i, one in enumerate(budgets):
        raw = {
            "metadata": {"namespace": "default", "name": f"b{i}"},
            "spec": {"selector": {"matchLabels": dict(one.labels)}},
            "status": {
                "disruptionsAllowed": one.allowed,
                "disruptedPods": dict.fromkeys(sorted(one.disrupted), "now"),
            },
        }
        store.put(ObjectRef(namespace="default", name=f"b{i}"), KubeObject.of(raw), i + 1)
    return store


def running(name: str, node: str, *, group: str = "", minute: int = 0, **fields: Any) -> Pod:
    status = {"startTime": f"2026-01-01T00:{minute:02}:00Z", **fields.pop("status", {})}
    pod = make_pod(name, uid=f"uid-{name}", node=node, status=status, **{"cpu": 1, **fields})
    return replace(pod, group_key=f"podgroup/default/{group}" if group else "")


@st.composite
def old_groups(draw: st.DrawFn) -> dict[str, PodGroup]:
    """Groups of running pods: some are evicted as a whole, two may be in one tree."""
    composite = PodGroup(
        kind="CompositePodGroup",
        name="tree",
        priority=draw(st.integers(0, 6)),
        disrupts_all=draw(st.booleans()),
    )
    made = [composite] if draw(st.booleans()) else []
    for name in OLD:
        if draw(st.integers(0, 9)):
            made.append(
                PodGroup(
                    name=name,
                    priority=draw(st.integers(0, 6)),
                    disrupts_all=name == "whole" or draw(st.booleans()),
                    parent_key=composite.key if name.startswith("tree") else "",
                )
            )
    return {group.key: group for group in made}


@st.composite
def clusters(draw: st.DrawFn) -> list[PlainNode]:
    minutes: Iterator[int] = iter(draw(st.permutations(range(30))))
    nodes = []
    for i in range(draw(st.integers(1, 5))):
        ports: set[int] = set()
        pods = []
        for j in range(draw(st.integers(0, 5))):
            port = draw(st.sampled_from([0, 0, 80, 81]))
            wanted = [port] if port and port not in ports else []
            ports.update(wanted)
            pods.append(
                running(
                    f"n{i}-{j}",
                    f"n{i}",
                    # No two units are equally important: which of them leaves is then open.
                    minute=next(minutes),
                    group=draw(st.sampled_from(["", *OLD])),
                    cpu=draw(st.integers(0, 3)),
                    priority=draw(st.integers(0, 6)),
                    labels=draw(st.sampled_from(LABELS)),
                    host_ports=wanted,
                )
            )
        nodes.append(PlainNode(f"n{i}", 1000 * draw(st.integers(1, 6)), draw(st.integers(1, 8)), tuple(pods)))
    return nodes
