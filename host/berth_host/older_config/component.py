"""KubeSchedulerConfiguration v1alpha1 to v1beta3, and flat lists without a version -> v1.

`conversion` calls it after the check of the document's shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from berth_sdk.yaml.encoding import read_text

from berth_host.config.decoding.types_v1 import API_VERSION, KIND
from berth_host.config.default_plugins import MULTI_POINT
from berth_host.config.source.node import Member, SourceNode
from berth_host.errors import HostError
from berth_host.older_config.extenders import convert_extenders
from berth_host.older_config.nodes import (
    field_of,
    list_of,
    object_of,
    text_of,
    with_members,
)
from berth_host.older_config.plugin_args import PluginArgs, read_plugin_args
from berth_host.older_config.plugin_sets import (
    LEAST_PLUGIN,
    MOST_PLUGIN,
    Entry,
    PluginSets,
    read_plugin_sets,
)
from berth_host.older_config.policy import PolicyParts
from berth_host.older_config.table import (
    POD_AFFINITY,
    Form,
    field_row,
)
from berth_host.older_config.warnings import Remarks

_WITHOUT_PROFILES: Final = frozenset({Form.FLAT, Form.V1ALPHA1})
_PROFILE_FIELDS: Final = ("schedulerName", "plugins", "pluginConfig")
_DROPPED: Final = ("healthzBindAddress", "metricsBindAddress", "failureDomains")
_LEASES: Final = "leases"
_PREEMPTION: Final = "DefaultPreemption"


@dataclass(frozen=True, slots=True)
class _ForProfiles:
    """Top-level fields that belong to every profile in v1."""

    bind_timeout: Member | None
    disable_preemption: Member | None
    hard_weight: Member | None
    provider: SourceNode | None
    policy: PolicyParts | None


POLICY_KEY: Final = "policy.cfg"
"""The key of a ConfigMap that holds a policy."""
ReadConfigMap: TypeAlias = Callable[[str, str, str], Mapping[str, str]]
"""Returns the data of a ConfigMap, given its namespace, its name and the `clientConnection.kubeconfig` of the
configuration. Raises HostError."""


@dataclass(frozen=True, slots=True)
class PolicySources:
    """The ways to read a policy. `parse`: reads its text, given the name of its source; raises
    ConfigurationError. `config_map`: reads a ConfigMap; None: there is no API server.
    """

    parse: Callable[[str, str, Remarks], PolicyParts]
    config_map: ReadConfigMap | None


def convert_component(root: SourceNode, remarks: Remarks, policies: PolicySources) -> SourceNode:
    """Return the same configuration as a v1 document.

    Raises ConfigurationError for fields that cannot be converted.
    """
    members = dict(root.members)
    source = members.pop("algorithmSource", None)
    _set_version(members, root, remarks)
    for name in _DROPPED:
        dropped = members.pop(name, None)
        if dropped is not None:
            remarks.changed(field_row(name), name, dropped.key_line)
    if "leaderElection" in members:
        members["leaderElection"] = _leader_election(members["leaderElection"], remarks)
    extenders = field_of(root, "extenders")
    if extenders is not None:
        members["extenders"] = Member(members["extenders"].key_line, convert_extenders(extenders, remarks))
    shared = _ForProfiles(
        bind_timeout=_given(members.pop("bindTimeoutSeconds", None)),
        disable_preemption=_given(members.pop("disablePreemption", None)),
        hard_weight=_given(members.pop("hardPodAffinitySymmetricWeight", None)),
        provider=_provider(source, remarks),
        policy=_policy(source, root, remarks, policies),
    )
    if shared.policy is not None and shared.policy.extenders is not None:
        members["extenders"] = Member(shared.policy.extenders.line, shared.policy.extenders)
    profiles = _profiles(members, root, remarks)
    converted = [_profile(one, path, shared, remarks) for path, one in profiles]
    key_line = members["profiles"].key_line if "profiles" in members else converted[0].line
    members.pop("profiles", None)
    if any(one.members for one in converted):
        members["profiles"] = Member(key_line, list_of(converted, converted[0].line))
    return with_members(root, members)


def _given(member: Member | None) -> Member | None:
    return None if member is None or member.node.value is None else member


def _set_version(members: dict[str, Member], root: SourceNode, remarks: Remarks) -> None:
    line = root.line_of("apiVersion")
    what = text_of(root, "apiVersion")
    if remarks.form is Form.FLAT:
        what = "a document without a version, but with lists of plugins,"
        members["kind"] = Member(line, SourceNode(KIND, line))
    remarks.changed(field_row("apiVersion"), "apiVersion", line, what=what)
    version = {"apiVersion": Member(line, SourceNode(API_VERSION, line)), "kind": members.pop("kind")}
    rest = {name: member for name, member in members.items() if name != "apiVersion"}
    members.clear()
    members.update(version | rest)


def _leader_election(election: Member, remarks: Remarks) -> Member:
    members = dict(election.node.members)
    for older, name in (("lockObjectNamespace", "resourceNamespace"), ("lockObjectName", "resourceName")):
        given = members.pop(older, None)
        if given is None:
            continue
        path = f"leaderElection.{older}"
        remarks.changed(field_row(path), path, given.key_line)
        if field_of(election.node, name) is None:
            members[name] = given
        elif given.node.value not in ("", None):
            remarks.say(f"dropped: {name} is given as well", path, given.key_line)
    lock = members.get("resourceLock")
    if lock is not None and lock.node.value not in ("", None, _LEASES):
        row = field_row("leaderElection.resourceLock")
        what = f"the lock on {lock.node.value}"
        remarks.changed(row, "leaderElection.resourceLock", lock.key_line, what=what)
        members["resourceLock"] = Member(lock.key_line, SourceNode(_LEASES, lock.node.line))
    return Member(election.key_line, with_members(election.node, members))


def _provider(source: Member | None, remarks: Remarks) -> SourceNode | None:
    """Return the name of the algorithm provider; None for the default provider."""
    if source is None:
        return None
    provider = field_of(source.node, "provider")
    if provider is None:
        return None
    path = "algorithmSource.provider"
    if provider.value not in ("DefaultProvider", "ClusterAutoscalerProvider"):
        message = f'there was no provider "{provider.value}": DefaultProvider or ClusterAutoscalerProvider'
        raise remarks.refusal(message, path, provider)
    remarks.changed(field_row(path), path, provider.line, what=f"algorithmSource {provider.value}")
    return None if provider.value == "DefaultProvider" else provider


def _policy(
    source: Member | None, root: SourceNode, remarks: Remarks, policies: PolicySources
) -> PolicyParts | None:
    """Return the policy that `algorithmSource` names; None if it names none.

    Raises ConfigurationError if the policy cannot be read.
    """
    policy = None if source is None else field_of(source.node, "policy")
    if policy is None:
        return None
    path = "algorithmSource.policy"
    config_map, file = field_of(policy, "configMap"), field_of(policy, "file")
    if file is None and config_map is None:
        message = "name the policy's file in file.path, or its ConfigMap in configMap"
        raise remarks.refusal(message, path, policy)
    _check_nothing_beside(root, remarks)
    if file is not None:
        name, text = text_of(file, "path"), _file_text(file, remarks)
    elif config_map is not None:
        name = f"ConfigMap {text_of(config_map, 'namespace')}/{text_of(config_map, 'name')}"
        text = _config_map_text(config_map, root, remarks, policies.config_map)
    parts = policies.parse(text, name, remarks)
    remarks.changed(field_row("algorithmSource.policy"), path, policy.line, what=f"the policy {name}")
    return parts


def _check_nothing_beside(root: SourceNode, remarks: Remarks) -> None:
    """Refuse plugins and their arguments beside a policy, as 1.18 did, the last release that had both."""
    for name in ("plugins", "pluginConfig"):
        other = field_of(root, name)
        if other is not None and other.value not in (None, ()):
            message = (
                f"{name} beside a policy is not supported, nor was it in kube-scheduler 1.18: convert the "
                "policy alone (berth check-config -o yaml POLICY) and add them to its profile"
            )
            raise remarks.refusal(message, name, other)


def _file_text(file: SourceNode, remarks: Remarks) -> str:
    try:
        return read_text(Path(text_of(file, "path")))
    except (OSError, ValueError) as err:
        message = f"cannot read the policy: {getattr(err, 'strerror', None) or err}"
        raise remarks.refusal(message, "algorithmSource.policy.file.path", file) from err


def _config_map_text(
    config_map: SourceNode, root: SourceNode, remarks: Remarks, read: ReadConfigMap | None
) -> str:
    path = "algorithmSource.policy.configMap"
    namespace, name = text_of(config_map, "namespace"), text_of(config_map, "name")
    missing = [field for field, text in (("namespace", namespace), ("name", name)) if not text]
    if missing:
        raise remarks.refusal(f"the ConfigMap's {' and '.join(missing)} is missing: add it", path, config_map)
    if read is None:
        message = (
            "there is no API server here to read the policy from: write it to a file (kubectl -n "
            f"{namespace} get configmap {name} -o 'jsonpath={{.data.policy\\.cfg}}' > policy.cfg) and name "
            "that file in algorithmSource.policy.file.path; berth scheduler reads the ConfigMap itself"
        )
        raise remarks.refusal(message, path, config_map)
    connection = field_of(root, "clientConnection")
    kubeconfig = "" if connection is None else text_of(connection, "kubeconfig")
    try:
        data = read(namespace, name, kubeconfig)
    except HostError as err:
        message = f"cannot read the policy from ConfigMap {namespace}/{name}: {err}"
        raise remarks.refusal(message, path, config_map) from err
    if POLICY_KEY not in data:
        found = ", ".join(sorted(data)) or "nothing"
        message = (
            f"ConfigMap {namespace}/{name} has no key {POLICY_KEY} (it has {found}): put the policy there"
        )
        raise remarks.refusal(message, path, config_map)
    return data[POLICY_KEY]


def _profiles(members: dict[str, Member], root: SourceNode, remarks: Remarks) -> list[tuple[str, SourceNode]]:
    """Return the profiles of the document with their paths; at least one."""
    if remarks.form not in _WITHOUT_PROFILES:
        given = field_of(root, "profiles")
        items = given.items if given is not None else ()
        if not items:
            return [("profiles[0]", object_of({}, root.line_of("profiles")))]
        return [(f"profiles[{index}]", one) for index, one in enumerate(items)]
    moved = {name: member for name in _PROFILE_FIELDS if (member := members.pop(name, None)) is not None}
    for name, member in moved.items():
        remarks.changed(field_row(name), name, member.key_line)
    line = min((member.key_line for member in moved.values()), default=root.line)
    return [("", SourceNode.of_mapping(moved, line, ()))]


def _profile(profile: SourceNode, path: str, shared: _ForProfiles, remarks: Remarks) -> SourceNode:
    prefix = f"{path}." if path else ""
    plugins = field_of(profile, "plugins")
    policy = shared.policy
    if policy is None:
        provider = shared.provider
        line = profile.line if provider is None else provider.line
        scorer = LEAST_PLUGIN if provider is None else MOST_PLUGIN
        sets = read_plugin_sets(plugins, f"{prefix}plugins", line, remarks, scorer)
    else:
        sets = policy.sets
    if shared.disable_preemption is not None and shared.disable_preemption.node.value is True:
        _disable_preemption(sets, shared.disable_preemption, remarks)
    if policy is None:
        args = read_plugin_args(field_of(profile, "pluginConfig"), f"{prefix}pluginConfig", sets, remarks)
    else:
        args = policy.args
    _put_shared(args, shared, remarks)
    # With a single profile, an empty name means the default name.
    members = {
        name: member
        for name, member in profile.members.items()
        if name not in ("plugins", "pluginConfig") and not (not path and member.node.value == "")
    }
    for name, node in (("plugins", sets.node()), ("pluginConfig", args.node(profile.line))):
        if node is not None:
            members[name] = Member(node.line, node)
    return with_members(profile, members)


def _disable_preemption(sets: PluginSets, given: Member, remarks: Remarks) -> None:
    remarks.changed(field_row("disablePreemption"), "disablePreemption", given.key_line)
    sets.at(MULTI_POINT).disabled.append(Entry(_PREEMPTION, None, given.key_line))


def _put_shared(args: PluginArgs, shared: _ForProfiles, remarks: Remarks) -> None:
    if shared.bind_timeout is not None:
        name, line = "bindTimeoutSeconds", shared.bind_timeout.key_line
        remarks.changed(field_row(name), name, line)
        args.put("VolumeBinding", name, line, bindTimeoutSeconds=shared.bind_timeout.node)
    # The policy's own weight takes precedence.
    if shared.hard_weight is not None and (shared.policy is None or POD_AFFINITY not in args.entries):
        name, line = "hardPodAffinitySymmetricWeight", shared.hard_weight.key_line
        remarks.changed(field_row(name), name, line)
        args.put(POD_AFFINITY, name, line, hardPodAffinityWeight=shared.hard_weight.node)
