"""A plugin class -> `Descriptor`: the facts about an in-process or served plugin that the host needs.

`describe` derives the descriptor from the methods and the attributes of the class. `describe_instance` also
reads what `__init__` declared on the instance by the arguments (`self.needs`). The host makes the same
record from a served plugin's `PluginDescriptor`. `describe` runs when a plugin is registered or served, and
refuses a class that cannot work, with the cure.
"""

from __future__ import annotations

import inspect
import operator
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from berth_sdk.errors import PluginDefinitionError
from berth_sdk.events import EventInterest, Hint
from berth_sdk.extension_points import (
    COLUMNS_OF_PODS,
    METHODS,
    Account,
    DependsOn,
    ExtensionPoint,
    NodeColumn,
    NodeLabel,
    NodeMode,
    Plugin,
    PodSensitivity,
    ScoreNormalization,
    name_of,
    points_of,
)
from berth_sdk.kept.follows import BY_ROW
from berth_sdk.needs import Need, NeedKind
from berth_sdk.pod_fields import ALL_FIELDS, PodField
from berth_sdk.runtime.declarations import (
    BY_ARGUMENTS,
    OF_THE_CLASS,
    PARAMETERS,
    Declarations,
    attribute_of,
    check_attributes,
    check_declarations,
    check_methods,
)
from berth_sdk.runtime.misspelt import check_names
from berth_sdk.runtime.way_back import calls_host
from berth_sdk.scope import Scope

HOST_NORMALIZED: Final = frozenset(
    {
        ScoreNormalization.HOST_MAX,
        ScoreNormalization.HOST_MAX_REVERSED,
        ScoreNormalization.HOST_MIN_MAX,
    }
)
EARLY: Final = HOST_NORMALIZED | {ScoreNormalization.NONE}
"""With these, a node's score does not depend on the other candidates, so the score may be an early answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """The facts about one plugin, with defaults for unset values.

    `events` None: any event. `deadlines`: the desired deadlines in seconds, by point (`preBind`).
    `sign_fields`: pods that are equal in these fields get the same answers; None: not declared.
    `has_hint`, `has_pre_flight`: the plugin has `queueing_hint`, `pre_bind_pre_flight`. `has_add_remove`,
    `has_scenarios`: the plugin's methods for what-ifs. `less_only`: the plugin orders the queue only by
    `less`, so it cannot be served. `handle_client`: the plugin may call the host. `handle_required`: the
    plugin does not work without these calls.

    `depends_on`: the changes that end a kept answer; None: not declared, so no answers are kept. `reads`: the
    parts of a row in which two nodes with the same answers are alike; None: not declared.
    `host_keeps_answers`: the host of a served plugin keeps its answers by `sign_fields`. `scope`: a pod that
    meets one of these terms concerns the plugin; None: every pod does; empty: none does.

    The process of a served plugin does not send two values. `answers_early`: as in the class; None: as long
    as early answers save time. `signs_queue`: pods with equal signatures get the same answers at PreEnqueue
    and from the hint.
    """

    name: str
    points: tuple[ExtensionPoint, ...]
    version: str = ""
    node_mode: NodeMode = NodeMode.SNAPSHOT
    needs: tuple[Need, ...] = ()
    pod_sensitivity: PodSensitivity = PodSensitivity.CLUSTER
    normalization: ScoreNormalization = ScoreNormalization.PLUGIN
    reads_shared: tuple[str, ...] = ()
    events: tuple[EventInterest, ...] | None = None
    deadlines: Mapping[str, float] = field(default_factory=dict)
    max_concurrency: int = 0
    depends_on: DependsOn | None = None
    reads: frozenset[NodeColumn | NodeLabel] | None = None
    signs_queue: bool = False
    sign_fields: tuple[PodField, ...] | None = None
    host_keeps_answers: bool = False
    answers_early: bool | None = None
    has_hint: bool = False
    has_pre_flight: bool = False
    has_add_remove: bool = False
    has_scenarios: bool = False
    less_only: bool = False
    handle_client: bool = True
    handle_required: bool = False
    accounts: frozenset[Account] = frozenset()
    scope: tuple[Scope, ...] | None = None

    @property
    def keeps_state(self) -> bool:
        """True if the plugin's process has a copy of the snapshot: it names nodes by index or needs state."""
        return self.node_mode is NodeMode.SNAPSHOT or any(need.is_state for need in self.needs)

    @property
    def wants_whole_pod(self) -> bool:
        """True if calls have the JSON of their pod."""
        return any(need.kind is NeedKind.WHOLE_POD for need in self.needs)

    def events_in(self, profile: str) -> tuple[EventInterest, ...] | None:
        """Return the events that pods of a profile, by schedulerName, wait for. None: any event."""
        if self.events is None:
            return None
        return tuple(one for one in self.events if not one.profiles or profile in one.profiles)

    def has(self, point: ExtensionPoint) -> bool:
        """Return True if the plugin takes part in `point`."""
        return point in self.points


def describe(cls: type, name: str = "") -> Descriptor:
    """Return the descriptor of a plugin class, with `name` if it is given.

    Raises PluginDefinitionError for a class that the host could not call.

    >>> class AvoidSpot:
    ...     def filter(self, state, pod, node): ...
    >>> describe(AvoidSpot).points
    (<ExtensionPoint.FILTER: 4>,)
    """
    if not isinstance(cls, type):
        raise PluginDefinitionError(
            f"{cls!r} is not a class: register the plugin's class, the host makes the instance"
        )
    parts = _parts(cls)
    kept = _KEPT.get((cls, name))
    if kept is not None and len(kept[0]) == len(parts) and all(map(operator.is_, kept[0], parts)):
        return kept[1]
    found = _described(cls, name or name_of(cls))
    if len(_KEPT) >= _MAX_KEPT:
        _KEPT.clear()
    _KEPT[cls, name] = parts, found
    return found


_MAX_KEPT: Final = 256
_KEPT: Final[dict[tuple[type, str], tuple[tuple[object, ...], Descriptor]]] = {}
"""Descriptors by class and given name, with everything that they were derived from.

A host needs the descriptor of each plugin several times when it starts and whenever an instance attaches.
"""


def _parts(cls: type) -> tuple[object, ...]:
    """Return all that a descriptor is derived from: with the same objects, the descriptor is the same.

    These are the attributes of the class, its bases and their metaclasses, the items of lists and
    dictionaries among them, and what is in the modules, where `calls_host` reads functions.
    """
    parts: list[object] = []
    for base in (*inspect.getmro(type(cls)), *cls.__mro__):
        if base in (object, type):
            continue
        attributes = vars(base)
        parts += attributes
        parts += attributes.values()
        for value in tuple(attributes.values()):
            if isinstance(value, (dict, list)):
                parts += value
            if isinstance(value, dict):
                parts += value.values()
        module = sys.modules.get(base.__module__)
        if module is not None:
            parts += vars(module).values()
    return tuple(parts)


def _described(cls: type, title: str) -> Descriptor:
    check_names(title, cls, PARAMETERS)
    check_attributes(title, cls)
    if not points_of(cls):
        known = ", ".join(method for methods in METHODS.values() for method in methods)
        raise PluginDefinitionError(
            f"{title} takes part in no extension point: give it at least one of the methods {known}"
        )
    check_methods(title, cls)
    return _derived(title, cls, Declarations(cls))


def describe_instance(plugin: object, name: str = "") -> Descriptor:
    """Return the descriptor of a plugin instance, with `name` if it is given.

    What `__init__` assigned on the instance (`self.needs`) counts in place of the attribute of the class.
    Raises PluginDefinitionError for a class that the host could not call, and for a declaration of the
    instance that is wrong or may not depend on the arguments.
    """
    cls = type(plugin)
    known = describe(cls, name)
    assigned: Mapping[str, Any] = getattr(plugin, "__dict__", {})
    own = {key: assigned[key] for key in (*OF_THE_CLASS, *BY_ARGUMENTS) if key in assigned}
    if not own:
        return known
    for attribute in OF_THE_CLASS:
        if attribute in own and own[attribute] != attribute_of(cls, attribute):
            raise PluginDefinitionError(
                f"{known.name}.__init__ sets self.{attribute}, which may not depend on the arguments: declare"
                f" {attribute} in the class, or call it self._{attribute} if it is your own"
            )
    for attribute, value in own.items():
        # An empty list may be the author's own, to be filled later.
        if isinstance(value, list) and not value:
            raise PluginDefinitionError(
                f"{known.name}.__init__ sets self.{attribute} to an empty list, and {attribute} is a"
                f" declaration: write `self.{attribute} = ()` to declare none, or call it self._{attribute}"
                " if it is your own"
            )
    return _derived(known.name, cls, Declarations(cls, own))


def _derived(title: str, cls: type, declared: Declarations) -> Descriptor:
    check_declarations(title, declared)
    points = points_of(cls)
    node_mode = _node_mode(cls, declared)
    normalization = _normalization(title, cls, declared)
    depends_on = _depends_on(title, cls, declared, normalization)
    pod_sensitivity = _pod_sensitivity(declared, points, depends_on)
    sign_fields = _sign_fields(cls, declared)
    events = declared.value("events")
    _check_hint(title, cls, events or ())
    return Descriptor(
        name=title,
        version=declared.value("version"),
        points=points,
        node_mode=node_mode,
        needs=_needs(declared, node_mode),
        pod_sensitivity=pod_sensitivity,
        normalization=normalization,
        reads_shared=tuple(declared.value("reads_shared")),
        events=None if events is None else tuple(events),
        deadlines=MappingProxyType(dict(declared.value("deadlines"))),
        max_concurrency=declared.value("max_concurrency"),
        depends_on=depends_on,
        reads=_reads(title, declared, depends_on),
        signs_queue=sign_fields is not None or (depends_on is not None and _has(cls, "sign_queue")),
        sign_fields=sign_fields,
        # The host cannot call `sign`. What `sign_spec` reads is in the fields.
        host_keeps_answers=depends_on in BY_ROW and not _has(cls, "sign"),
        answers_early=declared.value("answers_early"),
        has_hint=_has(cls, "queueing_hint"),
        has_pre_flight=_has(cls, "pre_bind_pre_flight"),
        has_add_remove=_has(cls, "add_pod"),
        has_scenarios=_has(cls, "filter_scenarios"),
        less_only=_has(cls, "less") and not _has(cls, "sort_key"),
        handle_required=_handle_required(cls),
        accounts=frozenset(declared.value("accounts")),
        scope=_scope(declared),
    )


def _scope(declared: Declarations) -> tuple[Scope, ...] | None:
    scope = declared.value("scope")
    return (scope,) if isinstance(scope, Scope) else None if scope is None else tuple(scope)


def _handle_required(cls: type) -> bool:
    declared: bool | None = attribute_of(cls, "handle_required")
    return calls_host(cls) if declared is None else declared


def _has(cls: type, method: str) -> bool:
    return callable(getattr(cls, method, None))


def _normalization(title: str, cls: type, declares: Declarations) -> ScoreNormalization:
    declared = declares.value("normalization")
    if _has(cls, "normalize"):
        if declared not in (None, ScoreNormalization.RPC):
            raise PluginDefinitionError(
                f"{title} has the method `normalize` and declares normalization {declared.name},"
                " with which it would never be called: remove the one or the other"
            )
        return ScoreNormalization.RPC
    if declared is ScoreNormalization.RPC:
        raise PluginDefinitionError(
            f"{title} declares normalization RPC and has no method `normalize`: write it, or choose another"
        )
    if declared is not None:
        how: ScoreNormalization = declared
        return how
    # A `score` that gets one node after the other, without a `pre_score` that gets them all, cannot compare
    # nodes.
    alone = _has(cls, "score") and not _has(cls, "score_nodes") and not _has(cls, "pre_score")
    return ScoreNormalization.NONE if alone else ScoreNormalization.PLUGIN


def _depends_on(
    title: str, cls: type, declares: Declarations, normalization: ScoreNormalization
) -> DependsOn | None:
    declared: DependsOn | None = declares.value("depends_on")
    whole = normalization is ScoreNormalization.PLUGIN and _has(cls, "score_nodes")
    if whole and declared is not None and declared in (DependsOn.NODE, DependsOn.ROW, DependsOn.NODES):
        raise PluginDefinitionError(
            f"{title} declares depends_on {declared.name}, and its `score_nodes` answers final scores"
            " over all candidates together (normalization PLUGIN): declare NONE or HOST_* if a score does"
            " not depend on the other candidates, else DependsOn.TABLE"
        )
    return declared


def _reads(
    title: str, declares: Declarations, depends_on: DependsOn | None
) -> frozenset[NodeColumn | NodeLabel] | None:
    declared: Sequence[NodeColumn | NodeLabel] | None = declares.value("reads")
    if declared is None:
        return None
    if depends_on not in (DependsOn.NODE, DependsOn.ROW):
        named = "no depends_on" if depends_on is None else f"depends_on {depends_on.name}"
        raise PluginDefinitionError(
            f"{title} declares reads and {named}: declare DependsOn.NODE or DependsOn.ROW if one row of an"
            " answer follows from that row alone, else remove reads"
        )
    of_pods = [one.name for one in NodeColumn if one in declared and one in COLUMNS_OF_PODS]
    if of_pods and depends_on is DependsOn.NODE:
        raise PluginDefinitionError(
            f"{title} declares depends_on NODE and reads {', '.join(of_pods)}, which pods on the node change:"
            " declare DependsOn.ROW, or remove these columns from reads"
        )
    return frozenset(declared)


def _sign_fields(cls: type, declares: Declarations) -> tuple[PodField, ...] | None:
    depends_on: DependsOn | None = declares.value("depends_on")
    if depends_on is None:
        return None
    declared: Sequence[PodField] | None = declares.value("sign_fields")
    if declared is not None:
        return tuple(dict.fromkeys(declared))
    shares = depends_on is not DependsOn.OTHER
    # A class with its own `sign_queue` may distinguish waiting pods by more than their specs.
    return ALL_FIELDS if shares and not _has(cls, "sign_queue") else None


_HANDED_NODES: Final = (
    "pre_filter",
    "filter",
    "filter_nodes",
    "filter_scenarios",
    "post_filter",
    "pre_score",
    "score",
    "score_nodes",
    "normalize",
    "placement_generate",
    "placement_score",
)


def _node_mode(cls: type, declares: Declarations) -> NodeMode:
    declared: NodeMode | None = declares.value("node_mode")
    if declared is not None:
        return declared
    return NodeMode.SNAPSHOT if any(_has(cls, method) for method in _HANDED_NODES) else NodeMode.NAMES


_SENSITIVITIES: Final[Mapping[DependsOn | None, PodSensitivity]] = {
    DependsOn.NODE: PodSensitivity.NONE,
    DependsOn.NODES: PodSensitivity.NONE,
    DependsOn.ROW: PodSensitivity.NODE,
    DependsOn.TABLE: PodSensitivity.CLUSTER,
    DependsOn.OTHER: PodSensitivity.CLUSTER,
    None: PodSensitivity.CLUSTER,
}


def _pod_sensitivity(
    declares: Declarations, points: Sequence[ExtensionPoint], depends_on: DependsOn | None
) -> PodSensitivity:
    declared: PodSensitivity | None = declares.value("pod_sensitivity")
    if declared is not None:
        return declared
    return _SENSITIVITIES[depends_on] if ExtensionPoint.FILTER in points else PodSensitivity.NONE


def _needs(declares: Declarations, node_mode: NodeMode) -> tuple[Need, ...]:
    declared = declares.value("needs")
    if node_mode is NodeMode.NAMES and declared is Plugin.needs:
        return ()  # the default needs are for plugins that read the table
    return tuple(declared)


def _check_hint(title: str, cls: type, events: Sequence[EventInterest]) -> None:
    asked = any(interest.hint is Hint.ASK_PLUGIN for interest in events)
    if _has(cls, "queueing_hint") and not asked:
        raise PluginDefinitionError(
            f"{title} has the method `queueing_hint` and no event asks for it: set hint=Hint.ASK_PLUGIN"
            " on the entries of `events` that it decides"
        )
    if asked and not _has(cls, "queueing_hint"):
        raise PluginDefinitionError(
            f"{title}.events says Hint.ASK_PLUGIN and there is no method `queueing_hint`: write it, or say"
            " Hint.QUEUE"
        )
