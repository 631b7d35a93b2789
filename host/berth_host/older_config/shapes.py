"""The field sets of the older forms, and the strict check of a document against its form.

The check finds unknown fields, repeated fields and wrong types, with their paths in the user's file. Types
that did not change are those of v1.

Source: `staging/src/k8s.io/kube-scheduler/config/{v1alpha1,v1alpha2,v1beta1,v1beta2,v1beta3}` and
`config/v1` (Policy), releases 1.15 to 1.28.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from berth_host.config.decoding.args_v1 import ARGS_TYPES, ResourceSpecV1, ShapePointV1
from berth_host.config.decoding.go_types import (
    BOOL,
    DURATION,
    INT32,
    INT64,
    STRING,
    Context,
    GoType,
    decode_value,
    json_fields,
    object_of,
    slice_of,
    struct_of,
)
from berth_host.config.decoding.types_v1 import (
    GROUP,
    ClientConnection,
    Extender,
    LeaderElection,
    PluginConfigV1,
    PluginSetV1,
    PluginV1,
)
from berth_host.config.errors import ConfigurationError, Finding
from berth_host.config.source.node import SourceNode
from berth_host.older_config.nodes import field_of, text_of
from berth_host.older_config.table import Form


def _fields_of(cls: type[Any]) -> dict[str, GoType]:
    return {name: known.type for name, known in json_fields(cls).items()}


def _either(of_list: GoType, of_object: GoType) -> GoType:
    """Return the type of a value that may be a list or an object."""

    def decode(node: SourceNode, path: str, context: Context) -> None:
        decode_value(of_list if isinstance(node.value, tuple) else of_object, node, path, context)

    return GoType(zero=None, decode=decode, encode=lambda _: None, is_empty=lambda _: True)


def _decode_timeout(node: SourceNode, path: str, context: Context) -> None:
    decode_value(INT64 if type(node.value) is int else DURATION, node, path, context)


_TIMEOUT: Final = GoType(zero=None, decode=_decode_timeout, encode=lambda _: None, is_empty=lambda _: True)
"""A duration such as `10s`, or a number of nanoseconds as in policies."""

_META: Final = {"kind": STRING, "apiVersion": STRING}
_RESOURCES: Final = slice_of(struct_of(ResourceSpecV1))
_SHAPE: Final = slice_of(struct_of(ShapePointV1))
_NAMES: Final = slice_of(STRING)

_EXTENDER: Final = object_of(_fields_of(Extender) | {"enableHttps": BOOL})
_LEGACY: Final = _fields_of(Extender) | {"enableHttps": BOOL, "httpTimeout": _TIMEOUT}
_LEGACY_EXTENDER: Final = object_of(_LEGACY)
_POLICY_EXTENDER: Final = object_of(_LEGACY | {"apiVersion": STRING})
_PLUGIN_SET: Final = struct_of(PluginSetV1)
_FLAT_OR_SET: Final = _either(slice_of(struct_of(PluginV1)), _PLUGIN_SET)
_PLUGIN_CONFIG: Final = slice_of(struct_of(PluginConfigV1))

_POINTS: Final = (
    *("queueSort", "preFilter", "filter", "preScore", "score", "reserve"),
    *("permit", "preBind", "bind", "postBind"),
)


def _plugins(plugin_set: GoType, *more: str) -> GoType:
    return object_of(dict.fromkeys((*_POINTS, *more), plugin_set))


def _profile(plugins: GoType) -> GoType:
    return object_of({"schedulerName": STRING, "plugins": plugins, "pluginConfig": _PLUGIN_CONFIG})


_LOCK_FIELDS: Final = {"lockObjectNamespace": STRING, "lockObjectName": STRING}
_COMMON: Final = {
    **_META,
    "leaderElection": struct_of(LeaderElection),
    "clientConnection": struct_of(ClientConnection),
    "enableProfiling": BOOL,
    "enableContentionProfiling": BOOL,
    "percentageOfNodesToScore": INT32,
    "podInitialBackoffSeconds": INT64,
    "podMaxBackoffSeconds": INT64,
}
_ADDRESSES: Final = {"healthzBindAddress": STRING, "metricsBindAddress": STRING}
_ALPHA_PLUGINS: Final = _plugins(_FLAT_OR_SET, "postFilter", "normalizeScore", "unreserve")
_FLAT: Final = {**_META, "plugins": _ALPHA_PLUGINS, "pluginConfig": _PLUGIN_CONFIG}
_POLICY_SOURCE: Final = object_of(
    {
        "file": object_of({"path": STRING}),
        "configMap": object_of({"namespace": STRING, "name": STRING}),
    }
)

_PREDICATE: Final = object_of(
    {
        "name": STRING,
        "argument": object_of(
            {
                "serviceAffinity": object_of({"labels": _NAMES}),
                "labelsPresence": object_of({"labels": _NAMES, "presence": BOOL}),
            }
        ),
    }
)
_PRIORITY: Final = object_of(
    {
        "name": STRING,
        "weight": INT64,
        "argument": object_of(
            {
                "serviceAntiAffinity": object_of({"label": STRING}),
                "labelPreference": object_of({"label": STRING, "presence": BOOL}),
                "requestedToCapacityRatioArguments": object_of({"shape": _SHAPE, "resources": _RESOURCES}),
            }
        ),
    }
)

DOCUMENTS: Final[Mapping[Form, Mapping[str, GoType]]] = {
    Form.FLAT: _FLAT,
    Form.V1ALPHA1: {
        **_COMMON,
        **_ADDRESSES,
        **_FLAT,
        "leaderElection": object_of(_fields_of(LeaderElection) | _LOCK_FIELDS),
        "schedulerName": STRING,
        "algorithmSource": object_of({"policy": _POLICY_SOURCE, "provider": STRING}),
        "hardPodAffinitySymmetricWeight": INT32,
        "disablePreemption": BOOL,
        "bindTimeoutSeconds": INT64,
        "failureDomains": STRING,
    },
    Form.V1ALPHA2: {
        **_COMMON,
        **_ADDRESSES,
        "disablePreemption": BOOL,
        "bindTimeoutSeconds": INT64,
        "profiles": slice_of(_profile(_plugins(_PLUGIN_SET, "unreserve"))),
        "extenders": slice_of(_LEGACY_EXTENDER),
    },
    Form.V1BETA1: {
        **_COMMON,
        **_ADDRESSES,
        "parallelism": INT32,
        "profiles": slice_of(_profile(_plugins(_PLUGIN_SET, "postFilter"))),
        "extenders": slice_of(_LEGACY_EXTENDER),
    },
    Form.V1BETA2: {
        **_COMMON,
        **_ADDRESSES,
        "parallelism": INT32,
        "profiles": slice_of(_profile(_plugins(_PLUGIN_SET, "postFilter", "multiPoint", "preEnqueue"))),
        "extenders": slice_of(_EXTENDER),
    },
    Form.V1BETA3: {
        **_COMMON,
        "parallelism": INT32,
        "profiles": slice_of(_profile(_plugins(_PLUGIN_SET, "postFilter", "multiPoint", "preEnqueue"))),
        "extenders": slice_of(_EXTENDER),
    },
    Form.POLICY: {
        **_META,
        "predicates": slice_of(_PREDICATE),
        "priorities": slice_of(_PRIORITY),
        "extenders": slice_of(_POLICY_EXTENDER),
        "hardPodAffinitySymmetricWeight": INT32,
        "alwaysCheckAllPredicates": BOOL,
    },
}
"""The fields of every form's document, by name."""


def _args(kind: str, *, without: tuple[str, ...] = ()) -> GoType:
    fields = _fields_of(ARGS_TYPES[kind])
    return object_of({name: go_type for name, go_type in fields.items() if name not in without})


_STABLE_ARGS: Final = {
    kind: _args(kind) for kind in ("DefaultPreemptionArgs", "NodeAffinityArgs", "PodTopologySpreadArgs")
}
_BETA1_ARGS: Final = {
    **_STABLE_ARGS,
    "InterPodAffinityArgs": _args("InterPodAffinityArgs", without=("ignorePreferredTermsOfExistingPods",)),
    "NodeResourcesFitArgs": _args("NodeResourcesFitArgs", without=("scoringStrategy",)),
    "VolumeBindingArgs": _args("VolumeBindingArgs", without=("shape",)),
    "NodeResourcesLeastAllocatedArgs": object_of(_META | {"resources": _RESOURCES}),
    "NodeResourcesMostAllocatedArgs": object_of(_META | {"resources": _RESOURCES}),
    "RequestedToCapacityRatioArgs": object_of(_META | {"shape": _SHAPE, "resources": _RESOURCES}),
    "NodeLabelArgs": object_of(
        _META
        | dict.fromkeys(
            ("presentLabels", "absentLabels", "presentLabelsPreference", "absentLabelsPreference"), _NAMES
        )
    ),
    "ServiceAffinityArgs": object_of(
        _META | dict.fromkeys(("affinityLabels", "antiAffinityLabelsPreference"), _NAMES)
    ),
}
_BETA2_ARGS: Final = {
    **_STABLE_ARGS,
    "InterPodAffinityArgs": _args("InterPodAffinityArgs", without=("ignorePreferredTermsOfExistingPods",)),
    "NodeResourcesFitArgs": _args("NodeResourcesFitArgs"),
    "NodeResourcesBalancedAllocationArgs": _args("NodeResourcesBalancedAllocationArgs"),
    "VolumeBindingArgs": _args("VolumeBindingArgs"),
}

ARGS: Final[Mapping[Form, Mapping[str, GoType]]] = {
    Form.FLAT: {},
    # v1alpha1 had no types for arguments. Arguments of plugins that still exist are checked as those of v1.
    Form.V1ALPHA1: {},
    Form.V1ALPHA2: _BETA1_ARGS,
    Form.V1BETA1: _BETA1_ARGS,
    Form.V1BETA2: _BETA2_ARGS,
    Form.V1BETA3: _BETA2_ARGS | {"InterPodAffinityArgs": _args("InterPodAffinityArgs")},
    Form.POLICY: {},
}
"""The argument types of every form, by kind."""


def check_shape(root: SourceNode, form: Form, *, is_yaml: bool, source: str) -> None:
    """Check a document. Raises ConfigurationError of kind "decode" with every error in its shape."""
    context = Context(is_yaml=is_yaml)
    decode_value(object_of(DOCUMENTS[form]), root, "", context)
    for path, entries in _plugin_configs(root):
        for index, entry in enumerate(entries):
            _check_args(entry, f"{path}[{index}].args", form, context)
    if context.findings:
        findings = sorted(context.findings, key=lambda finding: finding.line or 0)
        raise ConfigurationError("decode", findings, source=source)


def _plugin_configs(root: SourceNode) -> list[tuple[str, tuple[SourceNode, ...]]]:
    found = [("pluginConfig", root)]
    profiles = field_of(root, "profiles")
    if profiles is not None:
        found += [(f"profiles[{i}].pluginConfig", one) for i, one in enumerate(profiles.items)]
    lists = [(path, field_of(owner, "pluginConfig")) for path, owner in found]
    return [(path, node.items) for path, node in lists if node is not None]


def _check_args(entry: SourceNode, path: str, form: Form, context: Context) -> None:
    kind = f"{text_of(entry, 'name')}Args"
    args = field_of(entry, "args")
    if args is None or kind not in ARGS[form]:
        return
    decode_value(ARGS[form][kind], args, path, context)
    given_version, given_kind = text_of(args, "apiVersion"), text_of(args, "kind")
    if given_version not in ("", f"{GROUP}/{form}"):
        message = f'no kind "{given_kind or kind}" is registered for version "{given_version}" beside {form}'
        context.findings.append(Finding(message, field=path, line=args.line_of("apiVersion")))
    if given_kind not in ("", kind):
        message = f"args for plugin {text_of(entry, 'name')} were not of type {kind}, got {given_kind}"
        context.findings.append(Finding(message, field=path, line=args.line_of("kind")))
