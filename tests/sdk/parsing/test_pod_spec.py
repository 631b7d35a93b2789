"""A spec is parsed once for all pods that have it; a pod with another spec never gets its result."""

from __future__ import annotations

import copy
from types import MappingProxyType
from typing import Any

import pytest
from berth_sdk.errors import ObjectError
from berth_sdk.parsing import pod_spec
from berth_sdk.parsing.pod_spec import PodSpec
from berth_sdk.pod import Pod
from berth_sdk.signature import signature

SPEC: dict[str, Any] = {
    "containers": [{"name": "main", "image": "web:1", "resources": {"requests": {"cpu": "500m"}}}],
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "nodeSelector": {"zone": "a"},
    "priority": 1,
}


def pod(name: str, spec: dict[str, Any], **status: Any) -> Pod:
    return Pod.from_object({"metadata": {"name": name, "uid": name}, "spec": spec, "status": status})


def test_pods_of_one_template_share_the_parsed_spec() -> None:
    first, second = pod("a", SPEC), pod("b", copy.deepcopy(SPEC))
    assert second.requests is first.requests
    assert second.tolerations is first.tolerations
    assert (first.name, second.name) == ("a", "b")
    assert signature(first) == signature(second)


def with_token(name: str, volume: str, **more: Any) -> Pod:
    """A pod as admission makes it: with a token volume that every container mounts."""
    mounts = [{"name": volume, "mountPath": "/token"}, {"name": "data", "mountPath": "/data"}]
    spec = {
        **SPEC,
        "containers": [{**SPEC["containers"][0], "volumeMounts": mounts}],
        "initContainers": [{"name": "first", "image": "i"}],
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": volume, **(more or {"projected": {}})}],
    }
    return pod(name, spec)


def test_token_volumes_part_no_pods() -> None:
    first, second = with_token("a", "kube-api-access-x7k2p"), with_token("b", "kube-api-access-9q1ze")
    assert second.shared_spec is first.shared_spec
    assert signature(first) == signature(second)


@pytest.mark.parametrize(
    "source",
    [
        {"awsElasticBlockStore": {"volumeID": "{}"}},
        {"image": {"reference": "{}"}},
        {"persistentVolumeClaim": {"claimName": "{}"}},
        {"projected": {}, "image": {"reference": "{}"}},
    ],
    ids="-".join,
)
def test_volume_of_another_kind_under_the_name_of_a_token_parts_pods(source: dict[str, Any]) -> None:
    def named(name: str) -> Pod:
        filled = {kind: dict.fromkeys(fields, name) for kind, fields in source.items()}
        return with_token(name, f"kube-api-access-{name}", **filled)

    first, second = named("one"), named("two")
    assert second.shared_spec is not first.shared_spec
    assert signature(first) != signature(second)


def test_bound_and_pending_pods_share_the_parsed_spec() -> None:
    waiting = pod("a", SPEC)
    bound = pod("a", SPEC | {"nodeName": "n1"}, phase="Running", conditions=[{"type": "PodScheduled"}])
    assert bound.requests is waiting.requests
    assert (bound.node_name, waiting.node_name) == ("n1", "")
    assert signature(bound) == signature(waiting)


@pytest.mark.parametrize("field", sorted(SPEC))
def test_spec_without_a_field_is_parsed_separately(field: str) -> None:
    whole, part = pod("a", SPEC), pod("a", {key: value for key, value in SPEC.items() if key != field})
    assert part != whole
    assert signature(part) != signature(whole)


def test_equal_value_of_a_wrong_type_is_refused() -> None:
    assert pod("a", SPEC).priority == 1
    with pytest.raises(ObjectError, match="must be an integer, not True"):
        pod("b", {**SPEC, "priority": True})


def test_resizes_in_the_status_are_not_shared() -> None:
    spec = {**SPEC, "nodeName": "n1"}
    resized = {"name": "main", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "2"}}
    assert pod("a", spec, containerStatuses=[resized]).requests["cpu"] == 2000
    assert pod("b", spec).requests["cpu"] == 500


def test_spec_with_values_that_are_not_json_is_parsed() -> None:
    read = PodSpec.of(MappingProxyType(SPEC), None)
    assert read.priority == 1
    assert read is not PodSpec.of(MappingProxyType(SPEC), None)


def test_number_of_cached_specs_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_spec, "MAX_SPECS", 3)
    monkeypatch.setattr(pod_spec, "known_specs", type(pod_spec.known_specs)())
    for priority in range(10):
        assert pod("a", {**SPEC, "priority": priority}).priority == priority
    assert len(pod_spec.known_specs) == 3


def test_cached_specs_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_spec, "MAX_BYTES", 5000)
    known = type(pod_spec.known_specs)()
    monkeypatch.setattr(pod_spec, "known_specs", known)
    for length in (100, 2000, 2000, 2000, 9000, 100):
        ask = f"{length}-{len(known)}-{known.bytes}"
        assert pod("a", {**SPEC, "schedulerName": ask, "hostname": "x" * length}).scheduler_name == ask
        assert known.bytes == sum(map(len, known)) <= 5000
    assert len(known) == 1


def test_change_of_an_object_after_parsing_changes_no_other_pod() -> None:
    first = copy.deepcopy(SPEC)
    pod("a", first)
    first["nodeSelector"]["zone"] = "b"
    assert pod("b", copy.deepcopy(SPEC)).node_selector == {"zone": "a"}
