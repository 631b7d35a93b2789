"""The object stores: objects by name and uid, and their changes since a generation."""

from __future__ import annotations

from berth_host.cache.objects import ObjectStores
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.node import Node
from berth_sdk.pod import Pod


def claim(name: str, namespace: str = "default", size: str = "1Gi") -> KubeObject:
    return KubeObject.of(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"resources": {"requests": {"storage": size}}},
        }
    )


def test_pod_is_found_by_key_and_by_uid() -> None:
    stores = ObjectStores()
    pod = Pod(name="a", uid="1")
    assert stores.put_pod(pod) is None
    assert stores.pod("default/a") is pod
    assert stores.pod_by_uid("1") is pod
    assert list(stores.pods()) == [pod]


def test_pod_of_the_same_name_and_another_uid_replaces_the_old_one() -> None:
    stores = ObjectStores()
    old, new = Pod(name="a", uid="1"), Pod(name="a", uid="2")
    stores.put_pod(old)
    assert stores.put_pod(new) is old
    assert stores.pod_by_uid("1") is None
    assert stores.remove_pod(old) is None
    assert stores.pod("default/a") is new
    assert stores.remove_pod(new) is new
    assert stores.pod_by_uid("2") is None
    assert stores.remove_pod(new) is None


def test_bound_pod_keeps_its_bytes_alone() -> None:
    stores = ObjectStores()
    raw = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": "1"}}
    pending = Pod.from_object(KubeObject.of(raw))
    stores.put_pod(pending)
    assert pending.object is not None
    assert pending.object.parsed is raw
    parsed = {**raw, "spec": {"nodeName": "n1"}}
    bound = Pod.from_object(KubeObject.of(parsed))
    stores.put_pod(bound)
    assert bound.object is not None
    assert bound.object.parsed is not parsed
    assert bound.object.get("spec.nodeName") == "n1"


def test_nodes_are_kept_by_name() -> None:
    stores = ObjectStores()
    node = Node(name="n1")
    assert stores.put_node(node) is None
    assert stores.node("n1") is node
    assert list(stores.nodes()) == [node]
    assert stores.remove_node("n1") is node
    assert stores.remove_node("n1") is None


def test_objects_are_kept_by_kind_namespace_and_name() -> None:
    stores = ObjectStores()
    first, second = claim("data"), claim("data", "other")
    assert stores.put("PersistentVolumeClaim", first) is None
    stores.put("PersistentVolumeClaim", second)
    assert stores.get("PersistentVolumeClaim", "data", "default") is first
    assert stores.of_resource("persistentvolumeclaims").list() == [first, second]
    assert stores.of_resource("persistentvolumeclaims").list("other") == [second]
    assert stores.remove("PersistentVolumeClaim", ObjectRef(name="data", namespace="default")) is first
    assert stores.remove("PersistentVolumeClaim", ObjectRef(name="data", namespace="default")) is None
    assert stores.get("PersistentVolumeClaim", "data", "default") is None


def test_custom_resource_is_stored_under_its_resource_name() -> None:
    stores = ObjectStores()
    widget = KubeObject.of({"kind": "Widget", "metadata": {"name": "w"}})
    stores.put("example.com/widgets", widget)
    assert stores.of_resource("example.com/widgets").get("w") is widget


def test_store_names_changed_and_removed_objects_since_a_generation() -> None:
    stores = ObjectStores()
    for name in "abc":
        stores.put("PersistentVolumeClaim", claim(name))
    before = stores.generations.last
    stores.put("PersistentVolumeClaim", claim("a", size="2Gi"))
    stores.remove("PersistentVolumeClaim", ObjectRef(name="b", namespace="default"))
    store = stores.of_kind("PersistentVolumeClaim")
    assert [item.ref.name for item in store.changed_since(before)] == ["a"]
    removed = store.removed.since(before)
    assert removed is not None
    assert [ref.name for _, ref in removed] == ["b"]
    assert store.generation_sum == 3 + 4
