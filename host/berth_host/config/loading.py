"""The text of a configuration file -> LoadedConfiguration, or all errors in the file.

Steps, in kube-scheduler's order: read the first document, convert it if it is of an older version and the
caller gives a converter, decode it strictly, fill in defaults, validate, build the extenders and profiles.
berth's own document is read between validation and building, because it says which other plugins exist; its
errors are reported beside those of the first. Called by `app` and by commands that take a configuration.
Source: `cmd/kube-scheduler/app` (options/options.go, server.go), `pkg/scheduler/scheduler.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, Protocol

from berth_sdk.gang_policy import COSCHEDULING_PLUGIN, GANG_SCHEDULING, POLICY_KEY

from berth_host.config.berth.configuration import BerthConfiguration
from berth_host.config.berth.decoding import decode_berth
from berth_host.config.berth.managed_resources import check_managers
from berth_host.config.checks.configuration import check_configuration
from berth_host.config.configuration import LoadedConfiguration, ResolvedProfile
from berth_host.config.decoding.go_types import encode_struct
from berth_host.config.decoding.scheduler_v1 import DecodedScheduler, decode_scheduler
from berth_host.config.decoding.types_v1 import API_VERSION, KIND, KubeSchedulerConfiguration
from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME
from berth_host.config.defaulting import DefaultedScheduler, apply_defaults
from berth_host.config.emulation import Emulation, emulation_of
from berth_host.config.errors import ConfigurationError, Finding, errors_without_secrets, together
from berth_host.config.feature_gates import FeatureGates, resolve_feature_gates
from berth_host.config.gate_tables import FEATURE_GATES
from berth_host.config.profiles.building import build_profiles, extender_warnings
from berth_host.config.profiles.expansion import ProfileError
from berth_host.config.profiles.registry import plugin_registry
from berth_host.config.source.documents import Documents, read_documents, read_rest
from berth_host.config.source.node import Json, SourceError, SourceNode
from berth_host.log.hidden import hide
from berth_host.log.secrets import secrets_of

_NO_PLUGINS: Final[Mapping[str, frozenset[str]]] = {}
_NO_GATES: Final[Mapping[str, bool]] = {}
_DEFAULT_SOURCE: Final = "defaults"
POD_GROUP_GATE: Final = "GenericWorkload"
_GATES_OF_GROUPS: Final = (
    "TopologyAwareWorkloadScheduling",
    "CompositePodGroup",
    "DRAWorkloadResourceClaims",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """The command line's replacements for fields of the first document, made between defaults and validation.

    Values by attribute of the types in `decoding.types_v1`.
    """

    leader_election: Mapping[str, Any] = field(default_factory=dict)
    client_connection: Mapping[str, Any] = field(default_factory=dict)
    top: Mapping[str, Any] = field(default_factory=dict)

    def applied(self, config: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
        """Return the document with these values in it."""
        return replace(
            config,
            leader_election=replace(config.leader_election, **self.leader_election),
            client_connection=replace(config.client_connection, **self.client_connection),
            **self.top,
        )


NO_OVERRIDES = Overrides()


@dataclass(frozen=True, slots=True)
class Conversion:
    """The result of a conversion. `root` is as given if the document was in none of the older forms; `form`
    is then None.
    """

    root: SourceNode
    warnings: tuple[str, ...] = ()
    form: str | None = None


class OlderForms(Protocol):
    """Conversion of documents in older forms to v1. `older_config.conversion.Converter` does it."""

    def is_older(self, root: SourceNode) -> bool:
        """Return True for a document in an older form."""

    def convert(self, root: SourceNode, *, is_yaml: bool, source: str) -> Conversion:
        """Convert a document. Raises ConfigurationError for fields that its form does not have or v1 cannot
        express.
        """


def load_configuration(
    text: str,
    *,
    source: str,
    registered: Mapping[str, frozenset[str]] = _NO_PLUGINS,
    feature_gates: Mapping[str, bool] = _NO_GATES,
    berth: BerthConfiguration | None = None,
    older: Callable[[], OlderForms] | None = None,
    overrides: Overrides = NO_OVERRIDES,
    emulated_version: str = "",
    amend: Callable[[SourceNode], SourceNode] | None = None,
) -> LoadedConfiguration:
    """Load a whole file. `source` is its name in messages.

    Args:
        registered: plugins beside the default ones, by name, with the points they implement, spelled as in
            KubeSchedulerConfiguration.
        feature_gates: gates that are set, by name.
        berth: a BerthConfiguration that comes from another file.
        older: returns the converter of older forms; called for a first document that is not v1. None: such a
            document is refused, as kube-scheduler 1.37 does.
        overrides: fields of the command line that replace the file's.
        emulated_version: a version of kube-scheduler, as `1.36`, whose decisions, gates and defaults count;
            empty: those of the newest version, with every mend.
        amend: returns the first document with changes, given the document in v1 before it is decoded.

    Raises ConfigurationError, and ValueError for a registered point that does not exist.
    """
    emulation = emulation_of(emulated_version, source=source)
    gates = resolve_feature_gates(
        feature_gates, source=source, known=emulation.gates, removed=emulation.removed_gates
    )
    given = _Given(
        source=source,
        registered=registered,
        gates=gates,
        berth=berth,
        overrides=overrides,
        emulation=emulation,
        amend=amend,
    )
    with errors_without_secrets(text):
        return _read_and_load(text, given, older)


def _read_and_load(text: str, given: _Given, older: Callable[[], OlderForms] | None) -> LoadedConfiguration:
    make = None if older is None else cache(older)
    joins_rest = None if make is None else lambda root: not _is_v1(root) and make().is_older(root)
    documents = _read(text, given.source, joins_rest)
    root, warnings = (
        documents.scheduler,
        (*given.gates.warnings, *given.gates.without_effect, *documents.warnings),
    )
    if make is None or root is None or _is_v1(root):
        return _load(documents, given, warnings, form=None)
    forms = make()
    was_older = forms.is_older(root)
    try:
        converted = forms.convert(root, is_yaml=documents.is_yaml, source=given.source)
        warnings = (*warnings, *converted.warnings)
        return _load(replace(documents, scheduler=converted.root), given, warnings, form=converted.form)
    except ConfigurationError as err:
        if was_older:
            err.warnings = (*warnings, *err.warnings)
        raise


def _is_v1(root: SourceNode) -> bool:
    meta = (root.members.get(name) for name in ("apiVersion", "kind"))
    return [member and member.node.value for member in meta] == [API_VERSION, KIND]


def _load(
    documents: Documents, given: _Given, warnings: tuple[str, ...], *, form: str | None
) -> LoadedConfiguration:
    source, berth = given.source, given.berth
    if given.amend is not None and documents.scheduler is not None:
        documents = replace(documents, scheduler=given.amend(documents.scheduler))
    try:
        defaulted = _decode_and_validate(documents, given)
    except ConfigurationError as err:
        raise _with_those_of_berth(err, documents, source) from err
    own = _berth_of(documents, source)
    if own is not None and berth is not None:
        message = "a BerthConfiguration is given here and in another file"
        raise ConfigurationError("decode", [Finding(message)], source=source)
    effective = own or berth
    if effective is not None:
        findings = [
            finding
            if own is None or documents.berth is None
            else finding.at_line(documents.berth.line_of(finding.field))
            for finding in check_managers(effective.plugins, defaulted.config.extenders)
        ]
        if findings:
            raise ConfigurationError("validation", findings, source=source)
    loaded = _build(defaulted, documents, replace(given, berth=effective), form)
    return replace(loaded, warnings=(*warnings, *loaded.warnings))


def _with_those_of_berth(error: ConfigurationError, documents: Documents, source: str) -> ConfigurationError:
    """Return the error of the first document with all errors of berth's own: one run shows them all."""
    try:
        _berth_of(documents, source)
    except ConfigurationError as other:
        return together(error, other)
    return error


def _berth_of(documents: Documents, source: str) -> BerthConfiguration | None:
    """Return berth's own document, decoded; None without one."""
    if documents.berth_error is not None:
        raise _unreadable(documents.berth_error, source) from documents.berth_error
    return None if documents.berth is None else decode_berth(documents.berth, source=source)


def default_configuration(
    *,
    registered: Mapping[str, frozenset[str]] = _NO_PLUGINS,
    feature_gates: Mapping[str, bool] = _NO_GATES,
    berth: BerthConfiguration | None = None,
    overrides: Overrides = NO_OVERRIDES,
    emulated_version: str = "",
) -> LoadedConfiguration:
    """Return the meaning of an empty KubeSchedulerConfiguration: one profile, all default plugins."""
    text = f"apiVersion: {API_VERSION}\nkind: {KIND}\n"
    return load_configuration(
        text,
        source=_DEFAULT_SOURCE,
        registered=registered,
        feature_gates=feature_gates,
        berth=berth,
        overrides=overrides,
        emulated_version=emulated_version,
    )


def load_berth_configuration(text: str, *, source: str) -> BerthConfiguration:
    """berth's own document of a file, alone; defaults if there is none. Raises ConfigurationError.

    For callers that need the places of plugins before they can name the points of each plugin.
    """
    with errors_without_secrets(text):
        return _berth_of(_read(text, source), source) or BerthConfiguration()


def _read(text: str, source: str, joins_rest: Callable[[SourceNode], bool] | None = None) -> Documents:
    try:
        documents = read_documents(text, joins_rest)
    except SourceError as err:
        raise _with_those_of_berth(_unreadable(err, source), read_rest(text), source) from err
    roots = (documents.scheduler, documents.berth)
    hide(secrets_of(*(root.to_json() for root in roots if root is not None)))
    return documents


def _unreadable(error: SourceError, source: str) -> ConfigurationError:
    return ConfigurationError("decode", [Finding(error.message, line=error.line)], source=source)


def _decode_and_validate(documents: Documents, given: _Given) -> DefaultedScheduler:
    root, gates = documents.scheduler, given.gates
    if root is None:
        config = KubeSchedulerConfiguration(kind=KIND, api_version=API_VERSION)
        decoded = DecodedScheduler(config=config, plugin_config=())
    else:
        decoded = decode_scheduler(
            root,
            is_yaml=documents.is_yaml,
            source=given.source,
            absent_fields=given.emulation.absent_fields,
        )
    absent = given.emulation.absent_fields
    defaulted = apply_defaults(decoded, gates, given.emulation.plugins, absent)
    defaulted = replace(defaulted, config=given.overrides.applied(defaulted.config))
    findings = [
        finding if root is None else finding.at_line(root.line_of(finding.field))
        for finding in check_configuration(defaulted, gates, absent)
    ]
    if findings:
        raise ConfigurationError("validation", findings, source=given.source)
    return defaulted


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """The caller's arguments beside the text."""

    source: str
    registered: Mapping[str, frozenset[str]]
    gates: FeatureGates
    berth: BerthConfiguration | None
    overrides: Overrides
    emulation: Emulation
    amend: Callable[[SourceNode], SourceNode] | None = None


def _build(
    defaulted: DefaultedScheduler, documents: Documents, given: _Given, form: str | None
) -> LoadedConfiguration:
    scheduler_json = encode_struct(defaulted.config)
    berth = given.berth or BerthConfiguration()
    root = documents.scheduler
    try:
        registry = plugin_registry(defaulted.profiles, given.registered, berth, given.emulation.plugins)
        profiles = tuple(
            _told_policy(_told_gates(one, given.gates, given.emulation))
            for one in build_profiles(
                defaulted,
                registry,
                berth.plugins,
                lists_placement_feasible=given.emulation.lists_placement_feasible,
            )
        )
    except ProfileError as err:
        findings = [err.finding.at_line(None if root is None else root.line_of(err.finding.field))]
        raise ConfigurationError("profile", findings, source=given.source, config=scheduler_json) from err
    gates, group_warnings = given.gates, list[str]()
    if gates.is_enabled(POD_GROUP_GATE) and not given.emulation.rules.has_pod_groups:
        gates = gates.without((POD_GROUP_GATE, *_GATES_OF_GROUPS))
        group_warnings.append(
            f"feature gate {POD_GROUP_GATE}: pod groups are scheduled as in 1.37 or not at all, so version"
            f" {given.emulation.version} schedules their members as single pods; emulate 1.37, or no version"
        )
    return LoadedConfiguration(
        scheduler=defaulted.config,
        profiles=profiles,
        berth=berth,
        warnings=(*registry.warnings, *extender_warnings(defaulted), *group_warnings),
        scheduler_json=scheduler_json,
        document=_object(root) or {"apiVersion": API_VERSION, "kind": KIND},
        berth_document=_object(documents.berth),
        converted_from=form,
        emulation=given.emulation,
        gates=gates,
    )


def _object(root: SourceNode | None) -> Mapping[str, Json] | None:
    shown = None if root is None else root.to_json()
    return shown if isinstance(shown, dict) else None


def _told_gates(profile: ResolvedProfile, gates: FeatureGates, emulation: Emulation) -> ResolvedProfile:
    """Put the gates into the plugins' arguments, as `featureGates`: a served plugin has no other way to know.

    Only gates that differ from the default that a plugin assumes, which is that of the newest version, and
    behaviours that the emulated version does not have, are put there. So most arguments stay as they are.
    """
    args = dict(profile.plugin_args)
    for name in profile.plugin_names & DEFAULT_PLUGINS_BY_NAME.keys():
        told: dict[str, Json] = {
            gate: gates.is_enabled(gate)
            for gate in DEFAULT_PLUGINS_BY_NAME[name].reads_gates
            if gates.is_enabled(gate) is not FEATURE_GATES[gate].default
        }
        told.update(emulation.told_to(name))
        if told:
            own = args.get(name)
            args[name] = {**(own if isinstance(own, Mapping) else {}), "featureGates": told}
    return replace(profile, plugin_args=args)


def _told_policy(profile: ResolvedProfile) -> ResolvedProfile:
    """Put the arguments of GangScheduling into those of Coscheduling, whose groups follow them too."""
    policy = next((one.args for one in profile.plugin_config if one.name == GANG_SCHEDULING), None)
    if policy is None or COSCHEDULING_PLUGIN not in profile.plugin_names:
        return profile
    own = profile.plugin_args.get(COSCHEDULING_PLUGIN)
    told = {**(own if isinstance(own, Mapping) else {}), POLICY_KEY: policy}
    return replace(profile, plugin_args={**profile.plugin_args, COSCHEDULING_PLUGIN: told})
