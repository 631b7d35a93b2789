"""The changes since a version, with which a watch begins."""

from __future__ import annotations

from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import ObjectRef
from berth_sim.cluster.http.history import History
from berth_sim.cluster.server import ApiServer


def named(history: History, version: int) -> list[tuple[str, str]] | None:
    changes = history.since(version)
    if changes is None:
        return None
    told = []
    for change in changes:
        obj = change.new or change.old
        assert obj is not None
        told.append(("deleted" if change.new is None else "there", obj["metadata"]["name"]))
    return told


def node(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def test_changes_since_a_version_in_their_order() -> None:
    server = ApiServer(ManualClock())
    history = History(server.store)
    begin = history.version
    server.create(node("a"))
    between = history.version
    server.delete("nodes", ObjectRef(name="a"))
    assert named(history, begin) == [("there", "a"), ("deleted", "a")]
    assert named(history, between) == [("deleted", "a")]
    assert named(history, history.version) == []


def test_deletion_is_newer_than_the_object() -> None:
    server = ApiServer(ManualClock())
    history = History(server.store)
    made = server.create(node("a"))
    server.delete("nodes", ObjectRef(name="a"))
    assert history.version > int(made.ref.resource_version)


def test_compaction_drops_what_was_and_keeps_what_comes() -> None:
    server = ApiServer(ManualClock())
    history = History(server.store)
    begin = history.version
    server.create(node("a"))
    compacted = history.version
    history.compact()
    assert (history.version, history.forgotten) == (compacted, compacted)
    assert named(history, begin) is None
    assert named(history, compacted) == []
    server.create(node("b"))
    assert named(history, begin) is None
    assert named(history, compacted) == [("there", "b")]


def test_dropped_changes_are_reported_as_unknown() -> None:
    server = ApiServer(ManualClock())
    history = History(server.store, kept=2)
    begin = history.version
    for name in ("a", "b", "c"):
        server.create(node(name))
    assert named(history, begin) is None
    assert named(history, history.forgotten) == [("there", "b"), ("there", "c")]


def test_closed_history_records_nothing() -> None:
    server = ApiServer(ManualClock())
    history = History(server.store)
    history.close()
    server.create(node("a"))
    assert named(history, history.version) == []
