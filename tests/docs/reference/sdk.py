"""Generate docs/reference/sdk.md from the classes that an author's code reads and calls."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any, Final

from berth_sdk import (
    cycle_state,
    handle,
    kube_object,
    node,
    pod,
    pod_affinity,
    refresher,
    reservations,
    scenarios,
    selected_pods,
    sort_keys,
    status,
    testing,
)
from berth_sdk.tables import NodeTable, NodeView, PodChanges, PodCounts, PodsWith, PodTable
from berth_sdk.testing.builders import NodeFields, PodFields

from docs.reference.markdown import code, codes, docstring, one_line, table
from docs.reference.points import signature_of

_NOT_FOR_AUTHORS: Final = {
    "NodeTable": {"of", "with_changes", "known_pods"},
    "PodTable": {"of", "set_node_pods", "pods_of", "begin_update"},
    "CycleState": {"take_published", "was_ended"},
    "Attempt": {"ask_permit", "takes_part_in"},
    "PluginHost": {"place", "outcome", "ask_permit", "assume", "forget", "go_on", "at_work", "when_shown"},
}
"""Members that only hosts and servers call."""


def data() -> str:
    """Return the tables of pods, nodes and node tables."""
    classes = (
        pod.Pod,
        pod_affinity.PodAffinity,
        pod_affinity.PodAffinityTerm,
        node.Node,
        NodeView,
        NodeTable,
        PodTable,
        PodCounts,
        selected_pods.SelectedPods,
        PodsWith,
        scenarios.Scenario,
        scenarios.Scenarios,
        PodChanges,
        kube_object.KubeObject,
        kube_object.ObjectRef,
    )
    return _classes(*classes)


def verdicts() -> str:
    """Return the tables of Status and Verdicts."""
    return _classes(status.Status, status.Verdicts)


def state() -> str:
    """Return the table of CycleState."""
    return _classes(cycle_state.CycleState)


def the_handle() -> str:
    """Return the table of the handle."""
    return _classes(handle.Handle, handle.ObjectReader)


def pieces() -> str:
    """Return the tables of the classes that plugins make for themselves."""
    return _classes(reservations.Reservations, reservations.Reservation, refresher.Refresher)


def keys() -> str:
    """Return the table of sort keys."""
    return _functions(sort_keys)


def for_tests() -> str:
    """Return the tables of `berth_sdk.testing`."""
    parts = [
        _functions(testing),
        f"**Keywords of `make_pod` and `pod_object`.** {_keywords(PodFields)}",
        f"**Keywords of `make_node` and `node_object`.** {_keywords(NodeFields)}",
        _classes(testing.PluginHost, testing.Attempt, testing.RecordingHandle),
    ]
    return "\n\n".join(parts)


def _keywords(cls: type) -> str:
    described = docstring(cls).partition("\n\n")[2]
    return f"{described} All keywords: {codes(inspect.get_annotations(cls))}."


def _functions(module: ModuleType) -> str:
    rows = []
    for name in getattr(module, "__all__", vars(module)):
        function = getattr(module, name)
        if inspect.isfunction(function) and not name.startswith("_"):
            rows.append((code(signature_of(name, function)), _first(function)))
    return table(("Function", "Meaning"), rows)


def _classes(*classes: type) -> str:
    parts = []
    for cls in classes:
        parts += [f"### {cls.__name__}", docstring(cls), _fields(cls)]
        rows = list(_members(cls))
        if rows:
            parts.append(table(("Member", "Meaning"), rows))
    return "\n\n".join(part for part in parts if part)


def _fields(cls: type) -> str:
    """Return the fields of a value class."""
    if not is_dataclass(cls):
        return ""
    return f"Fields: {codes(f'{field.name}: {field.type}' for field in fields(cls))}."


def _members(cls: type) -> Iterator[tuple[str, str]]:
    """Yield public properties and methods with a docstring, in the order of the text."""
    for name, member in vars(cls).items():
        if name.startswith("_") or name in _NOT_FOR_AUTHORS.get(cls.__name__, ()):
            continue
        if isinstance(member, property):
            yield code(name), _first(member.fget)
        elif isinstance(member, staticmethod | classmethod):
            yield code(f"{cls.__name__}.{signature_of(name, member.__func__)}"), _first(member.__func__)
        elif inspect.isfunction(member):
            yield code(signature_of(name, member)), _first(member)


def _first(function: Any) -> str:
    """Return the docstring without its examples."""
    return one_line((inspect.getdoc(function) or "").partition("\n>>>")[0])
