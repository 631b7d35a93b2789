"""The embedded API server: versions, conflicts, bindings, finalizers, what may not change."""

from __future__ import annotations

import pytest
from berth_host.cluster.port import WatchEvent
from berth_host.errors.cluster import ConflictError, InvalidError, NotFoundError
from berth_host.model.clock import ManualClock
from berth_host.model.patch_type import PatchType
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sim.cluster.kinds import POD
from berth_sim.cluster.server import ApiServer
from support.manifest_objects import node_object, pod_object


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000)


@pytest.fixture
def server(clock: ManualClock) -> ApiServer:
    return ApiServer(clock)


def changes(server: ApiServer) -> list[WatchEvent]:
    seen: list[WatchEvent] = []
    server.store.subscribe(seen.append)
    return seen


def test_created_object_gets_identity_version_and_time(server: ApiServer) -> None:
    pod = server.create(pod_object("web"))
    other = server.create(pod_object("api"))
    assert pod.ref.uid
    assert pod.ref.uid != other.ref.uid
    assert int(other.ref.resource_version) > int(pod.ref.resource_version)
    assert pod.get("metadata.creationTimestamp") == "2027-01-15T08:00:00Z"
    assert pod.get("status.phase") == "Pending"


def test_created_object_starts_without_the_status_it_says(server: ApiServer) -> None:
    said = pod_object("web") | {"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}}
    assert server.create(said).get("status") == {"phase": "Pending"}


def test_node_keeps_the_status_it_says_as_a_kubelet_registers_it(server: ApiServer) -> None:
    assert server.create(node_object("a")).get("status.allocatable.cpu") == "4"


def test_restored_object_keeps_identity_times_and_status(server: ApiServer) -> None:
    said = pod_object("web", metadata={"uid": "u-1", "creationTimestamp": "2026-01-01T00:00:00Z"})
    said["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:05Z"}
    pod = server.create(said, restore=True)
    assert pod.ref.uid == "u-1"
    assert pod.get("metadata.creationTimestamp") == "2026-01-01T00:00:00Z"
    assert pod.get("status.startTime") == "2026-01-01T00:00:05Z"


def test_name_that_is_taken_is_a_conflict(server: ApiServer) -> None:
    server.create(pod_object("web"))
    with pytest.raises(ConflictError, match="already exists"):
        server.create(pod_object("web"))
    server.create(pod_object("web", namespace="other"))


def test_generated_names_differ(server: ApiServer) -> None:
    obj = pod_object("x")
    obj["metadata"] = {"generateName": "job-"}
    names = {server.create(obj).ref.name for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("job-") for name in names)


def test_namespace_that_is_not_there_is_made(server: ApiServer) -> None:
    server.create(pod_object("web", namespace="shop"))
    namespace = server.get("namespaces", ObjectRef(name="shop"))
    assert namespace is not None
    assert namespace.get("metadata.labels") == {"kubernetes.io/metadata.name": "shop"}


def test_bookkeeping_of_other_tools_is_stripped(server: ApiServer) -> None:
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "a"}
    pod = server.create(pod_object("web", metadata={"managedFields": [{}], "annotations": applied}))
    assert pod.get("metadata.annotations") == {"team": "a"}
    assert pod.get("metadata.managedFields") is None


def test_invalid_object_is_refused_with_every_problem(server: ApiServer) -> None:
    with pytest.raises(InvalidError) as caught:
        server.create(pod_object("web", cpu="five", nodeSelector={"zone": 1}))
    assert [problem.path for problem in caught.value.problems] == [
        "spec.containers[0].resources.requests.cpu",
        "spec.nodeSelector.zone",
    ]


def test_bound_pod_has_node_condition_and_no_nomination(server: ApiServer) -> None:
    pod = server.create(pod_object("web"))
    server.patch("pods", pod.ref, {"status": {"nominatedNodeName": "a"}}, subresource="status")
    bound = server.bind(ObjectRef(namespace="default", name="web", uid=pod.ref.uid), "a")
    assert bound.get("spec.nodeName") == "a"
    assert bound.get("status.nominatedNodeName") is None
    (condition,) = bound.get("status.conditions")
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


def test_second_binding_is_a_conflict(server: ApiServer) -> None:
    pod = server.create(pod_object("web"))
    server.bind(pod.ref, "a")
    with pytest.raises(ConflictError, match='already assigned to node "a"'):
        server.bind(pod.ref, "b")


def test_binding_of_another_pod_of_that_name_is_a_conflict(server: ApiServer) -> None:
    old = server.create(pod_object("web"))
    server.delete("pods", old.ref)
    server.create(pod_object("web"))
    with pytest.raises(ConflictError, match="UID in precondition"):
        server.bind(old.ref, "a")


def test_binding_of_a_pod_that_goes_away_is_a_conflict(server: ApiServer) -> None:
    pod = server.create(pod_object("web", metadata={"finalizers": ["example.com/hold"]}))
    server.delete("pods", pod.ref)
    with pytest.raises(ConflictError, match="being deleted"):
        server.bind(pod.ref, "a")


def test_binding_of_a_gated_pod_is_a_conflict(server: ApiServer) -> None:
    pod = server.create(pod_object("web", schedulingGates=[{"name": "example.com/wait"}]))
    with pytest.raises(ConflictError, match="schedulingGates"):
        server.bind(pod.ref, "a")


def test_binding_of_no_pod_is_not_found(server: ApiServer) -> None:
    with pytest.raises(NotFoundError):
        server.bind(ObjectRef(namespace="default", name="web"), "a")


def test_patch_merges_and_null_removes(server: ApiServer) -> None:
    pod = server.create(pod_object("web", metadata={"annotations": {"a": "1", "b": "2"}}))
    patched = server.patch("pods", pod.ref, {"metadata": {"annotations": {"a": None, "c": "3"}}})
    assert patched.get("metadata.annotations") == {"b": "2", "c": "3"}
    assert pod.get("metadata.annotations") == {"a": "1", "b": "2"}


def test_patch_of_an_older_version_is_a_conflict(server: ApiServer) -> None:
    pod = server.create(pod_object("web"))
    version = pod.ref.resource_version
    labels = {"metadata": {"labels": {"a": "1"}}}
    server.patch("pods", pod.ref, labels, expected_resource_version=version)
    with pytest.raises(ConflictError, match="the object has been modified"):
        server.patch("pods", pod.ref, {"metadata": {"labels": {"a": "2"}}}, expected_resource_version=version)


def test_patch_that_changes_nothing_keeps_the_version_and_sends_no_event(server: ApiServer) -> None:
    pod = server.create(pod_object("web", metadata={"labels": {"a": "1"}}))
    seen = changes(server)
    same = server.patch("pods", pod.ref, {"metadata": {"labels": {"a": "1"}}})
    assert same.ref.resource_version == pod.ref.resource_version
    assert seen == []


def test_status_patch_leaves_the_spec_and_the_other_way_round(server: ApiServer) -> None:
    pod = server.create(pod_object("web"))
    both = {"spec": {"schedulerName": "mine"}, "status": {"phase": "Running"}}
    after = server.patch("pods", pod.ref, both, subresource="status")
    assert (after.get("spec.schedulerName"), after.get("status.phase")) == ("default-scheduler", "Running")
    after = server.patch("pods", pod.ref, {"status": {"phase": "Failed"}})
    assert after.get("status.phase") == "Running"


@pytest.mark.parametrize(
    ("patch", "path"),
    [
        pytest.param({"spec": {"nodeName": "a"}}, "spec.nodeName", id="the node"),
        pytest.param({"spec": {"priority": 7}}, "spec.priority", id="the priority"),
        pytest.param({"spec": {"nodeSelector": {"a": "b"}}}, "spec.nodeSelector", id="selector, not gated"),
        pytest.param({"spec": {"schedulingGates": [{"name": "x"}]}}, "spec.schedulingGates", id="a new gate"),
        pytest.param({"spec": {"tolerations": None}}, "spec.tolerations", id="fewer tolerations"),
        pytest.param({"metadata": {"uid": "other"}}, "metadata.uid", id="the uid"),
    ],
)
def test_pod_change_that_kubernetes_refuses_is_invalid(
    server: ApiServer, patch: dict[str, object], path: str
) -> None:
    pod = server.create(pod_object("web", tolerations=[{"key": "a", "operator": "Exists"}]))
    with pytest.raises(InvalidError) as caught:
        server.patch("pods", pod.ref, patch)
    assert [problem.path for problem in caught.value.problems] == [path]


def test_write_of_the_status_is_validated_for_the_status_alone(server: ApiServer) -> None:
    old = server.create(pod_object("web"))
    # As a server accepted it that did not know the check.
    unchecked = {**old.parsed, "spec": {**old.parsed["spec"], "tolerations": [{"value": "x"}]}}
    server.store.put(POD, old.ref.key, unchecked)
    pod = server.get("pods", ObjectRef(namespace="default", name="web"))
    assert pod is not None
    after = server.patch("pods", pod.ref, {"status": {"nominatedNodeName": "a"}}, subresource="status")
    assert after.get("status.nominatedNodeName") == "a"
    with pytest.raises(InvalidError, match="tolerations"):
        server.patch("pods", after.ref, {"metadata": {"labels": {"a": "b"}}})
    node = server.create(node_object("a"))
    with pytest.raises(InvalidError, match=r"status\.capacity\.cpu"):
        server.patch("nodes", node.ref, {"status": {"capacity": {"cpu": "-1"}}}, subresource="status")


def test_a_status_that_is_wrong_is_refused_beside_the_same_one_that_is_right(server: ApiServer) -> None:
    pods = [server.create(pod_object(name)) for name in ("a", "b", "c")]
    right = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    for status, path in (
        ({"conditions": [right]}, ""),
        ({"conditions": [right], "nominatedNodeName": "n"}, ""),
        ({"conditions": [right], "startTime": "soon", "phase": "Pending"}, "status.startTime"),
        ({"conditions": [right | {"lastTransitionTime": "soon"}]}, "status.conditions[0].lastTransitionTime"),
        ({"conditions": [right | {"status": True}], "message": "m"}, "status.conditions[0].status"),
        ({"conditions": "none"}, "status.conditions"),
    ):
        for pod in pods:
            patch = {"status": status}
            if not path:
                after = server.patch("pods", pod.ref, patch, subresource="status")
                assert after.get("status.conditions") == [right]
                continue
            with pytest.raises(InvalidError) as caught:
                server.patch("pods", pod.ref, patch, subresource="status")
            assert [problem.path for problem in caught.value.problems] == [path]


def test_gates_can_be_removed_and_the_selector_set_meanwhile(server: ApiServer) -> None:
    pod = server.create(pod_object("web", schedulingGates=[{"name": "example.com/wait"}]))
    patched = server.patch("pods", pod.ref, {"spec": {"nodeSelector": {"a": "b"}}})
    assert patched.get("metadata.generation") == 2
    assert (
        server.patch("pods", pod.ref, {"spec": {"schedulingGates": None}}).get("spec.schedulingGates") is None
    )


def test_update_with_an_older_version_is_a_conflict(server: ApiServer) -> None:
    node = server.create(node_object("a"))
    wanted = dict(node.parsed) | {"spec": {"unschedulable": True}}
    assert server.update(wanted).get("spec.unschedulable") is True
    with pytest.raises(ConflictError):
        server.update(dict(node.parsed) | {"spec": {"unschedulable": False}})


def test_update_replaces_the_object_but_not_its_status(server: ApiServer) -> None:
    old = server.create(pod_object("web", metadata={"labels": {"a": "1"}}))
    said = {**old.parsed, "metadata": {**old.parsed["metadata"], "annotations": {"b": "2"}}}
    said["metadata"].pop("labels")
    after = server.update({**said, "status": {"phase": "Running"}})
    assert after.get("metadata.labels") is None
    assert after.get("metadata.annotations") == {"b": "2"}
    assert after.get("status.phase") == "Pending"
    assert (after.ref.uid, after.get("metadata.creationTimestamp")) == (
        old.ref.uid,
        old.get("metadata.creationTimestamp"),
    )


def test_update_of_the_status_replaces_the_status_alone(server: ApiServer) -> None:
    old = server.create(pod_object("web"))
    server.patch("pods", old.ref, {"status": {"nominatedNodeName": "a"}}, subresource="status")
    said = {**old.parsed, "spec": {}, "status": {"phase": "Running"}}
    said["metadata"] = {key: old.parsed["metadata"][key] for key in ("name", "namespace", "uid")}
    after = server.update(said, subresource="status")
    assert after.get("status") == {"phase": "Running"}
    assert after.get("spec") == old.get("spec")


def test_update_that_changes_nothing_keeps_the_version(server: ApiServer) -> None:
    pod = server.create(pod_object("web"))
    assert server.update(dict(pod.parsed)).ref.resource_version == pod.ref.resource_version


def test_update_of_another_object_of_that_name_is_a_conflict(server: ApiServer) -> None:
    old = server.create(node_object("a"))
    server.delete("nodes", old.ref)
    server.create(node_object("a"))
    metadata = {"name": "a", "uid": old.ref.uid}
    with pytest.raises(ConflictError, match="UID in precondition"):
        server.update({**old.parsed, "metadata": metadata})


def test_update_of_no_object_or_of_a_wrong_one_is_refused(server: ApiServer) -> None:
    with pytest.raises(NotFoundError):
        server.update(node_object("a"))
    with pytest.raises(InvalidError, match=r"metadata\.name"):
        server.update({"apiVersion": "v1", "kind": "Node", "metadata": {}})
    with pytest.raises(InvalidError):
        server.update({"apiVersion": "example.com/v1", "kind": "Other", "metadata": {"name": "a"}})
    server.create(node_object("a"))
    with pytest.raises(InvalidError, match=r"spec\.unschedulable"):
        server.update({**node_object("a"), "spec": {"unschedulable": "yes"}})


def test_strategic_patch_keeps_the_conditions_of_others(server: ApiServer) -> None:
    pod = server.create(pod_object("web"))
    conditions = [{"type": "example.com/Mine", "status": "True"}, {"type": "PodScheduled", "status": "True"}]
    server.patch("pods", pod.ref, {"status": {"conditions": conditions}}, subresource="status")
    patch = {
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    }
    after = server.patch("pods", pod.ref, patch, patch_type=PatchType.STRATEGIC, subresource="status")
    assert {item["type"]: item["status"] for item in after.get("status.conditions")} == {
        "example.com/Mine": "True",
        "PodScheduled": "False",
    }


def test_strategic_patch_that_cannot_be_read_is_invalid(server: ApiServer) -> None:
    pod = server.create(pod_object("web"))
    server.patch("pods", pod.ref, {"status": {"conditions": []}}, subresource="status")
    patch = {"status": {"conditions": [{"status": "False"}]}}
    with pytest.raises(InvalidError, match="declared merge key: type"):
        server.patch("pods", pod.ref, patch, patch_type=PatchType.STRATEGIC, subresource="status")


def test_deleted_object_is_removed_and_subscribers_get_the_event(server: ApiServer) -> None:
    pod = server.create(pod_object("web"))
    seen = changes(server)
    server.delete("pods", pod.ref)
    assert server.get("pods", pod.ref) is None
    assert [(event.kind, event.new) for event in seen] == [("Pod", None)]
    with pytest.raises(NotFoundError):
        server.delete("pods", pod.ref)


def test_finalizer_holds_a_deleted_object_until_it_is_removed(server: ApiServer) -> None:
    pod = server.create(pod_object("web", metadata={"finalizers": ["example.com/hold"]}))
    seen = changes(server)
    server.delete("pods", pod.ref, grace_period_s=30)
    server.delete("pods", pod.ref)
    held = server.get("pods", pod.ref)
    assert held is not None
    assert held.get("metadata.deletionTimestamp") == "2027-01-15T08:00:00Z"
    assert held.get("metadata.deletionGracePeriodSeconds") == 30
    assert (pod.get("metadata.generation"), held.get("metadata.generation")) == (1, 2)
    server.patch("pods", pod.ref, {"metadata": {"finalizers": None}})
    assert server.get("pods", pod.ref) is None
    assert [event.new is None for event in seen] == [False, True]


def test_delete_of_another_object_of_that_name_is_a_conflict(server: ApiServer) -> None:
    server.create(pod_object("web"))
    with pytest.raises(ConflictError):
        server.delete("pods", ObjectRef(namespace="default", name="web", uid="another"))


def test_get_with_the_uid_of_an_earlier_object_finds_nothing(server: ApiServer) -> None:
    old = server.create(pod_object("web"))
    server.delete("pods", old.ref)
    new = server.create(pod_object("web"))
    assert server.get("pods", old.ref) is None
    assert server.get("pods", new.ref) is new


def test_unknown_resource_names_the_known_ones(server: ApiServer) -> None:
    with pytest.raises(NotFoundError, match=r"storage\.k8s\.io/csinodes"):
        server.get("csinodes", ObjectRef(name="a"))


def test_stored_objects_are_not_changed_by_later_writes(server: ApiServer) -> None:
    pod = server.create(pod_object("web"))
    before = KubeObject.of(pod.parsed).raw
    server.patch("pods", pod.ref, {"metadata": {"labels": {"a": "1"}}})
    server.bind(pod.ref, "a")
    assert KubeObject.of(pod.parsed).raw == before


def test_update_of_a_pod_says_no_more_than_a_user_wrote(server: ApiServer) -> None:
    server.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 7,
        }
    )
    written = pod_object("p", priorityClassName="high")
    before = server.create(written)
    assert before.get("spec.priority") == 7
    labelled = {**written, "metadata": {**written["metadata"], "labels": {"a": "b"}}}
    after = server.update(labelled)
    assert after.get("metadata.labels") == {"a": "b"}
    assert after.get("spec") == before.get("spec")
    other = {**labelled, "spec": {**labelled["spec"], "priority": 8}}
    with pytest.raises(InvalidError, match=r"spec\.priority"):
        server.update(other)


def test_status_of_a_node_gets_its_defaults_at_update_too(server: ApiServer) -> None:
    server.create(node_object("a"))
    capacity = {"cpu": "3", "pods": "5"}
    after = server.update({**node_object("a"), "status": {"capacity": capacity}}, subresource="status")
    assert after.get("status.allocatable") == capacity


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha3"])
def test_composite_group_of_every_version_is_kept_in_the_newest_one(server: ApiServer, version: str) -> None:
    made = server.create(
        {
            "apiVersion": f"scheduling.k8s.io/{version}",
            "kind": "CompositePodGroup",
            "metadata": {"name": "tree", "namespace": "default"},
            "spec": {"schedulingPolicy": {"basic": {}}},
        }
    )
    assert (made.api_version, made.parsed["apiVersion"]) == ("scheduling.k8s.io/v1beta1",) * 2
