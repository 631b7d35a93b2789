"""Objects of one resource: by name, in order, and by their last change."""

from __future__ import annotations

from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.tables import ObjectStore


def item(name: str) -> KubeObject:
    return KubeObject.of({"kind": "Thing", "metadata": {"name": name}})


def ref(name: str, namespace: str = "") -> ObjectRef:
    return ObjectRef(name=name, namespace=namespace)


def test_objects_are_listed_by_namespace_and_name() -> None:
    store = ObjectStore()
    for generation, (namespace, name) in enumerate([("b", "x"), ("a", "y"), ("a", "x")], 1):
        store.put(ref(name, namespace), item(f"{namespace}/{name}"), generation)
    assert [each.ref.name for each in store.list()] == ["a/x", "a/y", "b/x"]
    assert [each.ref.name for each in store.list("b")] == ["b/x"]
    assert store.list("c") == []


def test_list_belongs_to_the_caller() -> None:
    store = ObjectStore()
    store.put(ref("a"), item("a"), 1)
    store.list().clear()
    assert len(store.list()) == 1


def test_object_is_replaced_and_counted_once() -> None:
    store = ObjectStore()
    store.put(ref("a"), item("a"), 1)
    new = item("a")
    store.put(ref("a"), new, 5)
    assert store.get("a") is new
    assert (len(store), store.generation_sum) == (1, 5)


def test_store_returns_changes_and_removals_since_a_generation() -> None:
    store = ObjectStore()
    for generation, name in enumerate("abc", 1):
        store.put(ref(name), item(name), generation)
    store.put(ref("a"), item("a"), 4)
    gone = store.remove("", "b", 5)
    assert gone is not None
    assert [each.ref.name for each in store.changed_since(2)] == ["c", "a"]
    assert store.removed.since(4) == [(5, ref("b"))]
    assert store.remove("", "b", 6) is None
    assert (store.generation_sum, store.get("b")) == (7, None)


def test_version_moves_with_every_change_and_lists_follow() -> None:
    store = ObjectStore()
    versions = [store.version]
    store.put(ref("a"), item("a"), 1)
    assert len(store.list()) == 1
    versions.append(store.version)
    store.remove("", "a", 2)
    assert store.list() == []
    versions.append(store.version)
    assert len(set(versions)) == 3


def test_no_two_stores_have_a_version_in_common() -> None:
    one, other = ObjectStore(), ObjectStore()
    versions = {one.version, other.version}
    for store in (one, other):
        store.remove("", "never there", 1)
        store.put(KubeObject.of({"metadata": {"name": "a"}}).ref, None, 1)
        versions.add(store.version)
    assert len(versions) == 4
