"""Checks of a plugin class before it is used: attribute types, event names, method signatures.

`descriptor.describe` calls it. Each error names the plugin, the mistake and the cure.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

from berth_sdk import extension_points
from berth_sdk.errors import PluginDefinitionError, SelectorError
from berth_sdk.events import POD_RESOURCES, EventInterest
from berth_sdk.extension_points import (
    Account,
    DependsOn,
    ExtensionPoint,
    NodeColumn,
    NodeLabel,
    NodeMode,
    Plugin,
    PodSensitivity,
    ScoreNormalization,
)
from berth_sdk.needs import Need, NeedKind
from berth_sdk.pod_fields import PodField
from berth_sdk.scope import Scope
from berth_sdk.selectors import LabelSelector, is_label_key


def _parameters() -> dict[str, tuple[str, ...]]:
    """Read the arguments of each method from the protocols of `extension_points`."""
    protocols = [
        one
        for one in vars(extension_points).values()
        if getattr(one, "_is_protocol", False) and one.__module__ == extension_points.__name__
    ]
    return {
        name: function.__code__.co_varnames[1 : function.__code__.co_argcount]
        for protocol in protocols
        for name, function in vars(protocol).items()
        if inspect.isfunction(function) and not name.startswith("_")
    }


BY_ARGUMENTS: Final = (
    "node_mode",
    "needs",
    "pod_sensitivity",
    "reads_shared",
    "events",
    "normalization",
    "sign_fields",
    "depends_on",
    "reads",
    "answers_early",
    "scope",
)
"""The attributes that `__init__` may assign on the instance, by its arguments. Source: the contract's
identity.proto (ConfigureResponse.plugins).
"""
OF_THE_CLASS: Final = (
    "version",
    "deadlines",
    "max_concurrency",
    "handle_required",
    "accounts",
    "feasible_by_progress",
)
"""The attributes that may not depend on the arguments."""


def attribute_of(cls: type, attribute: str) -> Any:
    """Return an attribute of a plugin class; its default if the class does not have it."""
    return getattr(cls, attribute, getattr(Plugin, attribute))


class Declarations:
    """The attributes that a plugin class declares, and those that an instance has in their place."""

    def __init__(self, cls: type, own: Mapping[str, Any] = MappingProxyType({})) -> None:
        """`own`: the attributes of the instance, by name."""
        self._cls = cls
        self._own = own

    def value(self, attribute: str) -> Any:
        """Return an attribute; its default if neither the instance nor the class has it."""
        return self._own[attribute] if attribute in self._own else attribute_of(self._cls, attribute)


PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = _parameters()
"""The positional arguments of each method of a plugin."""

_SIGNED: Final = ("pre_filter", "filter_nodes", "filter", "pre_score", "score_nodes", "score")
# Methods that have no effect without one of the others.
_BESIDE: Final[Mapping[str, tuple[str, ...]]] = {
    "sign_queue": ("pre_enqueue", "queueing_hint"),
    "hint_keys": ("pre_queueing_hint",),
    "pre_queueing_hint": ("queueing_hint",),
    "normalize": ("score_nodes", "score"),
    "normalize_placements": ("placement_score",),
    "filter_scenarios": ("filter_nodes", "filter"),
    "sensitive_to": ("filter_nodes", "filter"),
    "add_pod": ("filter_nodes", "filter"),
    "sign": _SIGNED,
    "sign_spec": _SIGNED,
    "pre_bind_pre_flight": ("pre_bind",),
    "unreserve": ("reserve",),
    "reconcile": ("reserve", "permit"),
}
_TYPES: Final[Mapping[str, tuple[type | tuple[type, ...], str]]] = {
    "version": (str, "a string"),
    "node_mode": ((NodeMode, type(None)), "a NodeMode or None"),
    "pod_sensitivity": ((PodSensitivity, type(None)), "a PodSensitivity or None"),
    "normalization": ((ScoreNormalization, type(None)), "a ScoreNormalization or None"),
    "depends_on": ((DependsOn, type(None)), "a DependsOn or None"),
    "answers_early": ((bool, type(None)), "True, False or None"),
    "max_concurrency": (int, "a number of calls"),
}
_LISTS: Final[Mapping[str, tuple[type | tuple[type, ...], str]]] = {
    "needs": (Need, "Need, as Need.nodes()"),
    "reads_shared": (str, "keys, as 'OtherPlugin/key'"),
    "events": (EventInterest, "EventInterest"),
    "accounts": (Account, "Account, as Account.RESOURCES"),
    "sign_fields": (PodField, "PodField, as PodField.LABELS"),
    "reads": (
        (NodeColumn, NodeLabel),
        "NodeColumn and NodeLabel, as NodeColumn.TAINTS or NodeLabel('topology.kubernetes.io/zone')",
    ),
}
_EVENT_RESOURCES: Final = (
    "*",
    "Pod",
    *POD_RESOURCES,
    "Node",
    "Namespace",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Service",
    "ReplicationController",
    "apps/ReplicaSet",
    "apps/StatefulSet",
    "policy/PodDisruptionBudget",
    "storage.k8s.io/CSINode",
    "storage.k8s.io/CSIDriver",
    "storage.k8s.io/VolumeAttachment",
    "storage.k8s.io/CSIStorageCapacity",
    "storage.k8s.io/StorageClass",
    "resource.k8s.io/ResourceClaim",
    "resource.k8s.io/ResourceSlice",
    "resource.k8s.io/DeviceClass",
    "resource.k8s.io/DeviceTaintRule",
    "scheduling.k8s.io/PodGroup",
    "scheduling.k8s.io/PriorityClass",
)


def check_attributes(title: str, cls: type) -> None:
    """Check that every attribute with the name of a method is one. Raises PluginDefinitionError."""
    for method in PARAMETERS:
        found = getattr(cls, method, None)
        if found is not None and not callable(found):
            raise PluginDefinitionError(f"{title}.{method} is not a method: rename the attribute")


def check_methods(title: str, cls: type) -> None:
    """Check that the host can call every method of a point. Raises PluginDefinitionError."""
    if inspect.isabstract(cls):
        lacking = ", ".join(f"`{name}`" for name in sorted(vars(cls)["__abstractmethods__"]))
        raise PluginDefinitionError(f"{title} cannot be made: it is abstract: write its methods {lacking}")
    for method, parameters in PARAMETERS.items():
        function = getattr(cls, method, None)
        if not callable(function):
            continue  # `check_attributes` has named it
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise PluginDefinitionError(
                f"{title}.{method} is a generator: `return` the answer in place of `yield`"
            )
        bound = inspect.getattr_static(cls, method)
        own = () if isinstance(bound, (staticmethod, classmethod)) else ("self",)
        try:
            inspect.signature(function).bind(*own, *parameters)
        except (TypeError, ValueError) as err:  # ValueError: a built-in function without a signature
            wanted = ", ".join(("self", *parameters))
            raise PluginDefinitionError(
                f"{title}.{method} cannot be called ({err}): write it as `def {method}({wanted})`"
            ) from err
    if cls.__init__ is not object.__init__:  # type: ignore[misc]  # compared, not called
        try:
            inspect.signature(cls).bind("args", "handle")
        except (TypeError, ValueError) as err:  # ValueError: a built-in class without a signature
            raise PluginDefinitionError(
                f"{title} cannot be made ({err}): write it as `def __init__(self, args, handle)`"
            ) from err
    for method, partners in _BESIDE.items():
        if _has(cls, method) and not any(_has(cls, partner) for partner in partners):
            raise PluginDefinitionError(
                f"{title} has `{method}` without {' or '.join(f'`{partner}`' for partner in partners)},"
                " so it would never be called: add the one or remove the other"
            )
    for method in ("sign", "sign_spec", "sensitive_to"):
        if inspect.iscoroutinefunction(getattr(cls, method, None)):
            raise PluginDefinitionError(
                f"{title}.{method} is `async def`, and the host cannot await it: write it as a plain method"
            )
    base = _overridden_half(cls)
    if base is not None:
        raise PluginDefinitionError(
            f"{title}.sign is not asked about the pods whose spec {base.__name__}.sign_spec decides: write"
            f" sign_spec in {title} too"
        )
    if _has(cls, "add_pod") != _has(cls, "remove_pod"):
        raise PluginDefinitionError(f"{title} has only one of `add_pod` and `remove_pod`: write both")


def _overridden_half(cls: type) -> type | None:
    """Return the base class whose `sign_spec` answers before a `sign` that was written for a subclass."""
    for base in cls.__mro__:
        own = vars(base)
        if "sign_spec" in own:
            return None
        if "sign" in own:
            return next((one for one in base.__mro__ if "sign_spec" in vars(one)), None)
    return None


def check_declarations(title: str, declared: Declarations) -> None:
    """Check the types and the values of the attributes. Raises PluginDefinitionError."""
    for attribute, (types, wanted) in _TYPES.items():
        value = declared.value(attribute)
        if not isinstance(value, types) or (types is int and isinstance(value, bool)):
            raise PluginDefinitionError(f"{title}.{attribute} is {value!r}: it must be {wanted}")
    if declared.value("max_concurrency") < 0:
        raise PluginDefinitionError(f"{title}.max_concurrency is negative: 0 leaves it to the host")
    for attribute, (item_type, wanted) in _LISTS.items():
        _check_list(title, declared, attribute, item_type, wanted)
    for key in declared.value("reads_shared"):
        if "/" not in key:
            raise PluginDefinitionError(
                f"{title}.reads_shared has {key!r}: write the key as '<plugin that publishes it>/<key>'"
            )
    if declared.value("answers_early") and declared.value("reads_shared"):
        raise PluginDefinitionError(
            f"{title} declares answers_early and reads_shared: an early answer cannot use values that other"
            " plugins publish later; leave one of the two out"
        )
    for one in declared.value("reads") or ():
        if isinstance(one, NodeLabel) and not is_label_key(one.key):
            raise PluginDefinitionError(
                f"{title}.reads has NodeLabel({one.key!r}): write the key of one label, as"
                " NodeLabel('topology.kubernetes.io/zone')"
            )
    for interest in declared.value("events") or ():
        _check_interest(title, interest)
    for need in declared.value("needs"):
        _check_need(title, need)
    _check_deadlines(title, declared.value("deadlines"))
    _check_scope(title, declared.value("scope"))


def _check_list(
    title: str, declared: Declarations, attribute: str, item_type: type | tuple[type, ...], wanted: str
) -> None:
    value = declared.value(attribute)
    if value is None and getattr(Plugin, attribute) is None:
        return
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, item_type) for item in value):
        raise PluginDefinitionError(f"{title}.{attribute} is {value!r}: it must be a list of {wanted}")


def _check_interest(title: str, interest: EventInterest) -> None:
    resource = interest.resource
    # Two dots: a custom resource, <plural>.<version>.<group>.
    if resource not in _EVENT_RESOURCES and resource.count(".") < 2:
        raise PluginDefinitionError(
            f"{title}.events names the unknown resource {resource!r}: "
            + _nearest(resource, _EVENT_RESOURCES)
            + "; a custom resource is written <plural>.<version>.<group>"
        )
    _ = interest.action  # raises for an unknown word


def _check_need(title: str, need: Need) -> None:
    if need.kind is not NeedKind.OBJECT:
        return
    if not need.resource:
        raise PluginDefinitionError(
            f"{title}.needs has objects without a resource: name it, as 'persistentvolumeclaims'"
        )
    if need.resource in ("pods", "nodes"):
        cure = "Need.pod_objects()" if need.resource == "pods" else "Need.node_objects()"
        raise PluginDefinitionError(f"{title}.needs asks for objects of {need.resource}: use {cure}")


def _check_deadlines(title: str, deadlines: Any) -> None:
    known = [point.config_name for point in ExtensionPoint]
    if not isinstance(deadlines, Mapping):
        raise PluginDefinitionError(
            f"{title}.deadlines is {deadlines!r}: it must map points to seconds, as {{'preBind': 30.0}}"
        )
    for point, seconds in deadlines.items():
        if point not in known:
            raise PluginDefinitionError(
                f"{title}.deadlines names the unknown point {point!r}: {_nearest(str(point), known)}"
            )
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds <= 0:
            raise PluginDefinitionError(
                f"{title}.deadlines[{point!r}] is {seconds!r}: it must be a number of seconds above 0"
            )


def _check_scope(title: str, scope: Any) -> None:
    terms = [scope] if isinstance(scope, Scope) else scope
    if terms is None:
        return
    if not isinstance(terms, (list, tuple)) or not all(isinstance(term, Scope) for term in terms):
        raise PluginDefinitionError(
            f"{title}.scope is {scope!r}: it must be a Scope or a list of Scope, as"
            " Scope(resources=('example.com/gpu',))"
        )
    for term in terms:
        if term == Scope():
            raise PluginDefinitionError(
                f"{title}.scope has a Scope without a condition, which every pod meets: set a condition, or"
                " leave `scope` out"
            )
        for field in fields(term):
            _check_condition(f"{title}.scope", field.name, getattr(term, field.name))


def _check_condition(where: str, name: str, value: Any) -> None:
    if name == "label_selector":
        if not isinstance(value, str):
            raise PluginDefinitionError(f"{where}: {name} is {value!r}: it must be text, as 'tier=gpu'")
        try:
            LabelSelector.parse(value)
        except SelectorError as err:
            raise PluginDefinitionError(f"{where}: {name} cannot be read: {err}") from err
    elif not isinstance(value, (list, tuple)) or not all(one and isinstance(one, str) for one in value):
        raise PluginDefinitionError(f"{where}: {name} is {value!r}: it must be a list of names")


def _nearest(text: str, known: tuple[str, ...] | list[str]) -> str:
    found = get_close_matches(text, known, n=1, cutoff=0.5)
    return f"did you mean {found[0]!r}?" if found else "use one of " + ", ".join(known)


def _has(cls: type, method: str) -> bool:
    return callable(getattr(cls, method, None))
