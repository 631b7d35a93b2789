"""Strategic merge patches: each directive, and random objects against plain models."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from berth_host.model.merge_patch import merged as json_merged
from berth_sim.cluster.strategic_merge import PatchError, merged
from hypothesis import given
from hypothesis import strategies as st

READY = {"type": "Ready", "status": "True"}
SCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def conditions(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"status": {"conditions": list(items), **more}}


@pytest.mark.parametrize(
    ("target", "patch", "want"),
    [
        pytest.param(
            conditions(READY), conditions(SCHEDULED), conditions(SCHEDULED, READY), id="a new one comes first"
        ),
        pytest.param(
            conditions(READY, SCHEDULED),
            conditions({"type": "PodScheduled", "message": "m"}),
            conditions(READY, SCHEDULED | {"message": "m"}),
            id="an item is merged where it stands",
        ),
        pytest.param(
            conditions(READY),
            conditions(
                SCHEDULED, **{"$setElementOrder/conditions": [{"type": "Ready"}, {"type": "PodScheduled"}]}
            ),
            conditions(READY, SCHEDULED),
            id="the order is set",
        ),
        pytest.param(
            conditions(READY, SCHEDULED),
            {"status": {"$setElementOrder/conditions": [{"type": "PodScheduled"}, {"type": "Ready"}]}},
            conditions(SCHEDULED, READY),
            id="the order alone",
        ),
        pytest.param(
            {},
            conditions(SCHEDULED | {"lastProbeTime": None}),
            conditions(SCHEDULED),
            id="null in what is new is nothing",
        ),
        pytest.param(
            conditions(SCHEDULED),
            conditions({"type": "PodScheduled", "reason": None}),
            conditions({"type": "PodScheduled", "status": "False"}),
            id="null removes",
        ),
        pytest.param(
            conditions(READY, SCHEDULED),
            conditions({"type": "Ready", "$patch": "delete"}),
            conditions(SCHEDULED),
            id="an item is deleted",
        ),
        pytest.param(
            conditions(READY),
            conditions({"$patch": "replace"}, SCHEDULED),
            conditions(SCHEDULED),
            id="a list is replaced",
        ),
        pytest.param(
            {"metadata": {"labels": {"a": "1"}}},
            {"metadata": {"labels": {"$patch": "replace", "b": "2"}}},
            {"metadata": {"labels": {"b": "2"}}},
            id="a map is replaced",
        ),
        pytest.param(
            {"metadata": {"labels": {"a": "1"}}},
            {"metadata": {"labels": {"$patch": "delete"}}},
            {"metadata": {"labels": {}}},
            id="a map is emptied",
        ),
        pytest.param(
            {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
            {
                "spec": {
                    "volumes": [
                        {"$retainKeys": ["name", "hostPath"], "name": "v", "hostPath": {"path": "/a"}}
                    ]
                }
            },
            {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/a"}}]}},
            id="other keys are dropped",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"finalizers": ["c", "a"]}},
            {"metadata": {"finalizers": ["c", "a", "b"]}},
            id="plain values are a set",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["a", "b", "c"]}},
            {
                "metadata": {
                    "$deleteFromPrimitiveList/finalizers": ["b"],
                    "$setElementOrder/finalizers": ["c", "a"],
                }
            },
            {"metadata": {"finalizers": ["c", "a"]}},
            id="plain values are removed",
        ),
        pytest.param(
            {"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}, {"uid": "2", "name": "b"}]}},
            {"metadata": {"ownerReferences": [{"uid": "2", "name": "c"}]}},
            {"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}, {"uid": "2", "name": "c"}]}},
            id="owners by uid",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "a", "image": "x", "env": [{"name": "E", "value": "1"}]}]}},
            {"spec": {"containers": [{"name": "a", "env": [{"name": "F", "value": "2"}]}]}},
            {
                "spec": {
                    "containers": [
                        {
                            "name": "a",
                            "image": "x",
                            "env": [{"name": "F", "value": "2"}, {"name": "E", "value": "1"}],
                        }
                    ]
                }
            },
            id="lists within items",
        ),
        pytest.param(
            {"spec": {"tolerations": [{"key": "a"}]}},
            {"spec": {"tolerations": [{"key": "b"}]}},
            {"spec": {"tolerations": [{"key": "b"}]}},
            id="tolerations are one value",
        ),
    ],
)
def test_patch_of_a_pod(target: dict[str, Any], patch: dict[str, Any], want: dict[str, Any]) -> None:
    before = copy.deepcopy((target, patch))
    assert merged("Pod", target, patch) == want
    assert (target, patch) == before


def test_a_list_is_merged_or_replaced_as_its_kind_says() -> None:
    taints = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    other = {"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}}
    assert merged("Node", taints, other) == other
    addresses = {"status": {"addresses": [{"type": "Hostname", "address": "a"}]}}
    more = {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}
    after = merged("Node", addresses, more)["status"]["addresses"]
    assert [item["type"] for item in after] == ["InternalIP", "Hostname"]
    reserved = {"status": {"reservedFor": [{"uid": "1", "name": "a"}]}}
    second = {"status": {"reservedFor": [{"uid": "2", "name": "b"}]}}
    assert len(merged("ResourceClaim", reserved, second)["status"]["reservedFor"]) == 2
    assert merged("PersistentVolume", {"spec": {"accessModes": ["a"]}}, {"spec": {"accessModes": ["b"]}}) == {
        "spec": {"accessModes": ["b"]}
    }


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        (conditions({"status": "True"}), "declared merge key: type"),
        (conditions({"type": "Ready", "$patch": "merge"}), "unknown patch type: merge"),
        ({"metadata": {"$patch": "append"}}, "unknown patch type: append"),
        ({"spec": {"$retainKeys": ["a"], "b": 1}}, "retainKeys"),
        ({"spec": {"$setElementOrder/tolerations": []}}, "spec.tolerations"),
        ({"status": {"conditions": ["Ready"]}}, "list of maps"),
    ],
)
def test_patch_that_cannot_be_read_says_why(patch: dict[str, Any], says: str) -> None:
    target = {"metadata": {"name": "p"}, "spec": {}, **conditions(READY)}
    with pytest.raises(PatchError, match=says):
        merged("Pod", target, patch)


# --- random objects --------------------------------------------------------------------------------

VALUES = st.dictionaries(st.sampled_from(["status", "reason", "message"]), st.integers(0, 3))
TYPES = st.lists(st.sampled_from("ABCDEF"), unique=True)
FINALIZERS = st.lists(st.sampled_from("uvwxyz"), unique=True, min_size=1)


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a pod with conditions, finalizers, and containers with lists."""
    env = [{"name": name, **draw(VALUES)} for name in draw(TYPES)]
    return {
        "metadata": {"finalizers": draw(FINALIZERS), "labels": draw(VALUES)},
        "spec": {"containers": [{"name": "main", "env": env}]},
        "status": {"conditions": [{"type": name, **draw(VALUES)} for name in draw(TYPES)], **draw(VALUES)},
    }


def difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the patch of a client that changes `old` into `new`."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        if value == old.get(key):
            continue
        if isinstance(value, dict) and isinstance(old.get(key), dict):
            patch[key] = difference(old[key], value)
        elif key in ("conditions", "env", "containers") and key in old:
            merge_key = "type" if key == "conditions" else "name"
            patch |= _list_difference(key, merge_key, old[key], value)
        elif key == "finalizers" and key in old:
            patch[key] = [item for item in value if item not in old[key]]
            patch[f"$deleteFromPrimitiveList/{key}"] = [item for item in old[key] if item not in value]
            patch[f"$setElementOrder/{key}"] = value
        else:
            patch[key] = value
    return patch


def _list_difference(
    key: str, merge_key: str, old: list[dict[str, Any]], new: list[dict[str, Any]]
) -> dict[str, Any]:
    known = {item[merge_key]: item for item in old}
    wanted = {item[merge_key] for item in new}
    items = [
        {merge_key: item[merge_key], **difference(known.get(item[merge_key], {}), item)}
        for item in new
        if item != known.get(item[merge_key])
    ]
    items += [{merge_key: name, "$patch": "delete"} for name in known if name not in wanted]
    return {key: items, f"$setElementOrder/{key}": [{merge_key: item[merge_key]} for item in new]}


@given(pods(), pods())
def test_the_difference_of_two_pods_leads_from_one_to_the_other(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    before = copy.deepcopy(old)
    assert merged("Pod", old, difference(old, new)) == new
    assert old == before


def keyed(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the pod with each merged list as a map, which a JSON merge patch merges in the same way."""
    containers = {
        item["name"]: {**item, "env": {env["name"]: env for env in item["env"]}}
        for item in pod["spec"]["containers"]
    }
    return {
        "metadata": {**pod["metadata"], "finalizers": dict.fromkeys(pod["metadata"]["finalizers"], True)},
        "spec": {"containers": containers},
        "status": {
            **pod["status"],
            "conditions": {item["type"]: item for item in pod["status"]["conditions"]},
        },
    }


@pytest.mark.slow
@given(pods(), pods())
def test_lists_with_a_key_are_merged_as_maps_are(target: dict[str, Any], patch: dict[str, Any]) -> None:
    assert keyed(merged("Pod", target, patch)) == json_merged(keyed(target), keyed(patch))


@given(pods(), pods())
def test_a_patch_twice_is_the_patch_once(target: dict[str, Any], patch: dict[str, Any]) -> None:
    once = merged("Pod", target, patch)
    assert merged("Pod", once, patch) == once
