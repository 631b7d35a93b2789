"""NodeDeclaredFeatures: the features that a spec needs, the nodes that have them, and the hints."""

from __future__ import annotations

from typing import Any

import pytest
from berth_plugins.node_declared_features import (
    REASON,
    RESTART_ALL,
    USER_NAMESPACES,
    NodeDeclaredFeatures,
)
from berth_sdk.events import ClusterEvent
from berth_sdk.pod import Pod
from berth_sdk.status import SUCCESS, Code
from berth_sdk.testing import make_node, make_table
from hypothesis import given
from hypothesis import strategies as st
from support.asking import Ask, Plug, filter_now

PLUG = Plug(NodeDeclaredFeatures)
RESTARTING = {"restartPolicyRules": [{"action": "RestartAllContainers"}]}
BOTH = {"hostNetwork": True, "hostUsers": False, "initContainers": [{"name": "i", **RESTARTING}]}


def pod_of(spec: dict[str, Any], uid: str = "u1") -> Pod:
    containers = spec.get("containers", [{"name": "c"}])
    return Pod.from_object(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web", "uid": uid},
            "spec": {**spec, "containers": containers},
        }
    )


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({}, (), id="plain"),
        pytest.param({"containers": [{"name": "c", **RESTARTING}]}, (RESTART_ALL,), id="container"),
        pytest.param({"initContainers": [{"name": "i", **RESTARTING}]}, (RESTART_ALL,), id="init container"),
        pytest.param(
            {"containers": [{"name": "c", "restartPolicyRules": [{"action": "Restart"}]}]},
            (),
            id="another action",
        ),
        pytest.param({"hostNetwork": True, "hostUsers": False}, (USER_NAMESPACES,), id="user namespace"),
        pytest.param({"hostNetwork": True}, (), id="users of the host"),
        pytest.param({"hostNetwork": True, "hostUsers": True}, (), id="users of the host, said"),
        pytest.param({"hostUsers": False}, (), id="own network"),
        pytest.param(BOTH, (RESTART_ALL, USER_NAMESPACES), id="both"),
    ],
)
def test_features_follow_from_the_spec(spec: dict[str, Any], want: tuple[str, ...]) -> None:
    assert NodeDeclaredFeatures.required_features(pod_of(spec).spec) == want


async def test_plain_pod_is_skipped(ask: Ask) -> None:
    nodes = make_table([make_node("a")])
    assert (await ask.pre_filter(PLUG, pod_of({}), nodes)).status.code is Code.SKIP


async def test_a_node_needs_every_feature(ask: Ask) -> None:
    declared = [(), ("Other",), (RESTART_ALL,), (USER_NAMESPACES,), (RESTART_ALL, "Other", USER_NAMESPACES)]
    nodes = make_table([make_node(f"n{i}", features=list(one)) for i, one in enumerate(declared)])
    assert await ask.filter(PLUG, pod_of(BOTH), nodes) == [REASON] * 4 + [SUCCESS]
    only_one = pod_of({"hostNetwork": True, "hostUsers": False})
    assert await ask.filter(PLUG, only_one, nodes) == [REASON] * 3 + [SUCCESS] * 2


names = st.sampled_from([RESTART_ALL, USER_NAMESPACES, "Other"])


@given(
    declared=st.lists(st.lists(names, unique=True), min_size=1, max_size=6),
    network=st.booleans(),
    users=st.sampled_from([None, True, False]),
    actions=st.lists(st.sampled_from(["Restart", "RestartAllContainers"]), max_size=2),
)
def test_verdicts_are_subset_tests(
    declared: list[list[str]], network: bool, users: bool | None, actions: list[str]
) -> None:
    rules = [{"action": action} for action in actions]
    spec = {
        "hostNetwork": network,
        "hostUsers": users,
        "containers": [{"name": "c", "restartPolicyRules": rules}],
    }
    needed = {RESTART_ALL} if "RestartAllContainers" in actions else set()
    needed |= {USER_NAMESPACES} if network and users is False else set()
    nodes = make_table([make_node(f"n{i}", features=features) for i, features in enumerate(declared)])
    want = [SUCCESS if needed <= set(features) else REASON for features in declared]
    assert filter_now(PLUG, pod_of(spec), nodes) == want


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(None, [], True, id="node added"),
        pytest.param([], [RESTART_ALL], True, id="more features"),
        pytest.param([RESTART_ALL], [], True, id="fewer features"),
        pytest.param([RESTART_ALL], [RESTART_ALL], False, id="same features"),
    ],
)
async def test_hint_for_changes_of_nodes(ask: Ask, old: list[str] | None, new: list[str], want: bool) -> None:
    event = ClusterEvent(
        resource="Node",
        action="add" if old is None else "update.declaredFeatures",
        old=None if old is None else make_node("a", features=old),
        new=make_node("a", features=new),
    )
    assert await ask.hint(PLUG, event, pod_of(BOTH)) is want


@pytest.mark.parametrize(
    ("spec", "uid", "want"),
    [
        pytest.param({"hostNetwork": True}, "u1", True, id="needs less"),
        pytest.param(BOTH, "u1", False, id="needs the same"),
        pytest.param({}, "u2", False, id="another pod"),
    ],
)
async def test_hint_for_changes_of_the_pod(ask: Ask, spec: dict[str, Any], uid: str, want: bool) -> None:
    event = ClusterEvent(resource="Pod", action="update", old=pod_of(BOTH, uid), new=pod_of(spec, uid))
    assert await ask.hint(PLUG, event, pod_of(BOTH)) is want
