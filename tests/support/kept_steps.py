"""The steps that show the mutants of kept answers, written short; see `kept_mutants`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pytest
from support.kept_objects import NODES, pod
from support.kept_world import KeptMachine

Mutant: TypeAlias = Callable[[pytest.MonkeyPatch, KeptMachine], None]
Step: TypeAlias = tuple[str, dict[str, Any]]


def cycles(spec: str = "plain", name: str = "p0", **fields: Any) -> Step:
    """Twice the pod, and between them one like it."""
    return "cycles", {"pod": pod(name, spec, **fields), "others": {"p5"}}


def once(spec: str = "plain", name: str = "p0", **fields: Any) -> Step:
    """The pod comes twice."""
    return "cycles", {"pod": pod(name, spec, **fields), "others": set()}


def placed(uid: str, spec: str = "plain", number: int = 0, **fields: Any) -> Step:
    """A pod is on a node."""
    given = {"cpu": 1, **fields}
    return "pod_comes", {"pod": pod("p", spec, **given), "uid": uid, "number": number, "assumed": False}


def gone(uid: str) -> Step:
    """A pod leaves."""
    return "pod_changes_or_goes", {"uid": uid, "labels": None}


def node(form: int, number: int) -> Step:
    """A node comes or changes."""
    return "node_comes_or_changes", {"fields": NODES[form], "number": number}


def thing(kind: str, name: str, form: int) -> Step:
    """An object comes, changes or goes."""
    return "object_comes_changes_or_goes", {"form": ((kind, name), form)}


def nominated(name: str, number: int | None, spec: str = "plain", **fields: Any) -> Step:
    """Return a nomination."""
    return "nomination_comes_moves_or_goes", {"pod": pod(name, spec, **fields), "number": number}


def mood(*, is_closed: bool) -> Step:
    """A plugin that declares nothing changes its answer."""
    return "mood_changes", {"is_closed": is_closed}


def simply(what: str) -> Step:
    """Return a step without a choice."""
    return what, {}


def failing(point: str, **fields: Any) -> Step:
    """Return a cycle in which a plugin fails."""
    return "plugin_fails", {"pod": pod("p0", **fields), "point": point}


DB: Mapping[str, str] = {"app": "db"}
NAMESPACE_X, NAMESPACE_Y = thing("Namespace", "default", 0), thing("Namespace", "default", 1)
