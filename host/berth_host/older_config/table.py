"""The one mapping table from older configurations to v1: old names, new names, and the release of the change.

The conversion, its warnings and the reference page use this table. `since`: the release of Kubernetes, or the
version of the API group, with the change.

Source: kube-scheduler 1.12 to 1.36: `pkg/scheduler/apis/config/{v1alpha1,...,v1beta3}`, the registry of
predicates and priorities of 1.22 (`framework/plugins/legacy_registry.go`), the changelogs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Form(StrEnum):
    """A form of configuration that is converted."""

    FLAT = "flat lists"
    V1ALPHA1 = "v1alpha1"
    V1ALPHA2 = "v1alpha2"
    V1BETA1 = "v1beta1"
    V1BETA2 = "v1beta2"
    V1BETA3 = "v1beta3"
    POLICY = "Policy"


class Subject(StrEnum):
    """The kind of name that a row is about."""

    FIELD = "field"
    POINT = "extension point"
    PLUGIN = "plugin"
    PREDICATE = "predicate"
    PRIORITY = "priority"


class Change(StrEnum):
    """The precision of a conversion. EXACT: v1 decides the same. APPROXIMATED: nearly the same. DROPPED: v1
    has no equivalent.
    """

    EXACT = "exact"
    APPROXIMATED = "approximated"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One name of an older form. `becomes`: its names in v1; empty if there is none.

    `forms`: the forms that have the name; others do not have it yet, or not any more. `strategy`: the
    `scoringStrategy` of NodeResourcesFit that replaces the name.
    """

    subject: Subject
    name: str
    forms: frozenset[Form]
    becomes: tuple[str, ...] = ()
    change: Change = Change.EXACT
    since: str
    note: str = ""
    strategy: str | None = None


_FLAT: Final = frozenset({Form.FLAT})
_V1ALPHA1: Final = frozenset({Form.V1ALPHA1})
_ALPHA1: Final = _FLAT | _V1ALPHA1
_ALPHAS: Final = _ALPHA1 | {Form.V1ALPHA2}
_UNTIL_BETA1: Final = _ALPHAS | {Form.V1BETA1}
_UNTIL_BETA2: Final = _UNTIL_BETA1 | {Form.V1BETA2}
COMPONENT_FORMS: Final = _UNTIL_BETA2 | {Form.V1BETA3}
_POLICY: Final = frozenset({Form.POLICY})
_EVERY: Final = COMPONENT_FORMS | _POLICY

FIT: Final = "NodeResourcesFit"
SPREAD: Final = "PodTopologySpread"
AFFINITY: Final = "NodeAffinity"
POD_AFFINITY: Final = "InterPodAffinity"
LEAST: Final = "LeastAllocated"
MOST: Final = "MostAllocated"
RATIO: Final = "RequestedToCapacityRatio"

_OF_FIT: Final = "NodeResourcesFit scores by this scoringStrategy; resources and weight are carried over"
_MIGRATED: Final = "in-tree volumes are migrated to CSI drivers, which NodeVolumeLimits counts"
_SERVICES: Final = "it has no equivalent: use podAffinity and podAntiAffinity in the pods"
_LABELS: Final = "the addedAffinity of NodeAffinity selects nodes instead"
_CONDITIONS: Final = (
    "since 1.12 a condition of a node is also a taint, which TaintToleration and NodeUnschedulable check"
)
_SPREADS: Final = (
    "the system default constraints of PodTopologySpread spread the pods of a service or controller"
)
_AVOID: Final = "its annotation has no effect any more: taint the nodes"


def _field(
    name: str, forms: frozenset[Form], becomes: str, change: Change, since: str, note: str = ""
) -> Row:
    names = (becomes,) if becomes else ()
    return Row(
        subject=Subject.FIELD, name=name, forms=forms, becomes=names, change=change, since=since, note=note
    )


FIELDS: Final[tuple[Row, ...]] = (
    _field("apiVersion", _EVERY, "kubescheduler.config.k8s.io/v1", Change.EXACT, "1.25"),
    _field("kind Policy", _POLICY, "one profile", Change.EXACT, "1.23"),
    _field("schedulerName", _V1ALPHA1, "profiles[0].schedulerName", Change.EXACT, "1.18"),
    _field("plugins", _ALPHA1, "profiles[0].plugins", Change.EXACT, "1.18"),
    _field("pluginConfig", _ALPHA1, "profiles[0].pluginConfig", Change.EXACT, "1.18"),
    _field(
        "plugins.*[] (a bare list)",
        _ALPHA1,
        "plugins.*.enabled, with disabled: [{name: '*'}]",
        Change.EXACT,
        "1.15",
        "the list replaces the default plugins of its point, as before",
    ),
    _field(
        "algorithmSource.provider",
        _V1ALPHA1,
        "the default profile",
        Change.EXACT,
        "1.18",
        "ClusterAutoscalerProvider scored MostAllocated, DefaultProvider LeastAllocated",
    ),
    _field(
        "algorithmSource.policy",
        _V1ALPHA1,
        "the plugins and extenders of the policy",
        Change.EXACT,
        "1.23",
        "the file at file.path is read; configMap is read by `berth scheduler`, at its key policy.cfg",
    ),
    _field(
        "hardPodAffinitySymmetricWeight",
        _V1ALPHA1 | _POLICY,
        "hardPodAffinityWeight of InterPodAffinityArgs",
        Change.EXACT,
        "1.18",
    ),
    _field(
        "bindTimeoutSeconds",
        _ALPHAS - _FLAT,
        "bindTimeoutSeconds of VolumeBindingArgs",
        Change.EXACT,
        "1.19",
        "in every profile",
    ),
    _field(
        "disablePreemption",
        _ALPHAS - _FLAT,
        "DefaultPreemption in multiPoint.disabled",
        Change.EXACT,
        "1.19",
        "in every profile, where it is true",
    ),
    *(
        _field(
            name,
            _UNTIL_BETA2 - _FLAT,
            "",
            Change.DROPPED,
            "v1beta3",
            "the flags --bind-address and --secure-port set the address of /healthz and /metrics",
        )
        for name in ("healthzBindAddress", "metricsBindAddress")
    ),
    _field(
        "failureDomains",
        _V1ALPHA1,
        "",
        Change.DROPPED,
        "1.15",
        "terms of pod affinity name their topologyKey",
    ),
    _field(
        "leaderElection.lockObjectNamespace",
        _V1ALPHA1,
        "leaderElection.resourceNamespace",
        Change.EXACT,
        "1.18",
    ),
    _field("leaderElection.lockObjectName", _V1ALPHA1, "leaderElection.resourceName", Change.EXACT, "1.18"),
    _field(
        "leaderElection.resourceLock",
        COMPONENT_FORMS - _FLAT,
        "leases",
        Change.EXACT,
        "1.24",
        "locks on Endpoints and ConfigMaps are gone",
    ),
    _field(
        "default weights",
        _UNTIL_BETA2 | _POLICY,
        "multiPoint.enabled with that weight",
        Change.EXACT,
        "v1beta3",
        "the defaults are 3 (TaintToleration) and 2 (NodeAffinity, InterPodAffinity) now",
    ),
    _field(
        "PodTopologySpreadArgs.defaultConstraints",
        _UNTIL_BETA1,
        "defaultConstraints, with defaultingType: List",
        Change.EXACT,
        "1.20",
        "without a defaultingType, constraints meant List; now it means System",
    ),
    _field("extenders[].enableHttps", _EVERY - _ALPHA1, "extenders[].enableHTTPS", Change.EXACT, "v1beta1"),
    _field(
        "extenders[].apiVersion",
        _POLICY,
        "",
        Change.DROPPED,
        "1.23",
        "kube-scheduler did not read it, and requests and answers have one form",
    ),
    _field(
        "extenders[].httpTimeout",
        frozenset({Form.V1ALPHA2, Form.V1BETA1, Form.POLICY}),
        "a duration with a unit",
        Change.EXACT,
        "v1beta1",
        "a number was nanoseconds",
    ),
    _field(
        "alwaysCheckAllPredicates",
        _POLICY,
        "",
        Change.DROPPED,
        "1.23",
        "the first plugin that rejects a node ends its evaluation",
    ),
)

POINTS: Final[tuple[Row, ...]] = (
    Row(
        subject=Subject.POINT,
        name="postFilter",
        forms=_ALPHA1,
        becomes=("preScore",),
        since="1.18",
        note="postFilter is another point in v1: it runs when no node is left",
    ),
    Row(
        subject=Subject.POINT,
        name="normalizeScore",
        forms=_ALPHA1,
        becomes=("score",),
        since="1.17",
        note="a plugin normalises its own scores at score",
    ),
    Row(
        subject=Subject.POINT,
        name="unreserve",
        forms=_ALPHAS,
        becomes=("reserve",),
        since="1.19",
        note="a Reserve plugin has Unreserve as well",
    ),
)


def _plugin(
    name: str,
    forms: frozenset[Form],
    becomes: str,
    change: Change,
    since: str,
    note: str,
    strategy: str | None = None,
) -> Row:
    return Row(
        subject=Subject.PLUGIN,
        name=name,
        forms=forms,
        becomes=(becomes,) if becomes else (),
        change=change,
        since=since,
        note=note,
        strategy=strategy,
    )


PLUGINS: Final[tuple[Row, ...]] = (
    _plugin("NodeResourcesLeastAllocated", _UNTIL_BETA1, FIT, Change.EXACT, "v1beta2", _OF_FIT, LEAST),
    _plugin("NodeResourcesMostAllocated", _UNTIL_BETA1, FIT, Change.EXACT, "v1beta2", _OF_FIT, MOST),
    _plugin("RequestedToCapacityRatio", _UNTIL_BETA1, FIT, Change.EXACT, "v1beta2", _OF_FIT, RATIO),
    _plugin("DefaultPodTopologySpread", _ALPHAS, SPREAD, Change.APPROXIMATED, "1.19", _SPREADS),
    _plugin("SelectorSpread", COMPONENT_FORMS, SPREAD, Change.APPROXIMATED, "v1", _SPREADS),
    _plugin("NodeLabel", _UNTIL_BETA1, AFFINITY, Change.APPROXIMATED, "v1beta2", _LABELS),
    _plugin("ServiceAffinity", _UNTIL_BETA1, "", Change.DROPPED, "v1beta2", _SERVICES),
    _plugin("NodePreferAvoidPods", _UNTIL_BETA1, "", Change.DROPPED, "v1beta2", _AVOID),
    _plugin(
        "NodeResourceLimits",
        _UNTIL_BETA1,
        "",
        Change.DROPPED,
        "1.20",
        "limits have no part in scoring any more",
    ),
    *(
        _plugin(name, COMPONENT_FORMS, "NodeVolumeLimits", Change.APPROXIMATED, "v1", _MIGRATED)
        for name in ("EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits")
    ),
)


def _of_policy(
    subject: Subject,
    name: str,
    becomes: Iterable[str],
    change: Change,
    note: str,
    strategy: str | None = None,
) -> Row:
    return Row(
        subject=subject,
        name=name,
        forms=_POLICY,
        becomes=tuple(becomes),
        change=change,
        since="1.23",
        note=note,
        strategy=strategy,
    )


def _predicate(name: str, *becomes: str, change: Change = Change.EXACT, note: str = "") -> Row:
    return _of_policy(Subject.PREDICATE, name, becomes, change, note)


def _priority(
    name: str, *becomes: str, change: Change = Change.EXACT, note: str = "", strategy: str | None = None
) -> Row:
    return _of_policy(Subject.PRIORITY, name, becomes, change, note, strategy)


LABELS_PRESENCE: Final = "labelsPresence"
SERVICE_AFFINITY: Final = "serviceAffinity"
LABEL_PREFERENCE: Final = "labelPreference"
SERVICE_ANTI_AFFINITY: Final = "serviceAntiAffinity"
RATIO_ARGUMENTS: Final = "requestedToCapacityRatioArguments"

PREDICATES: Final[tuple[Row, ...]] = (
    _predicate("GeneralPredicates", FIT, "NodeName", "NodePorts", AFFINITY),
    _predicate("PodFitsResources", FIT),
    _predicate("PodFitsHostPorts", "NodePorts"),
    _predicate("PodFitsPorts", "NodePorts"),
    _predicate("HostName", "NodeName"),
    _predicate("MatchNodeSelector", AFFINITY),
    _predicate("PodToleratesNodeTaints", "TaintToleration"),
    _predicate("CheckNodeUnschedulable", "NodeUnschedulable"),
    _predicate("NoDiskConflict", "VolumeRestrictions"),
    _predicate("NoVolumeZoneConflict", "VolumeZone"),
    _predicate("CheckVolumeBinding", "VolumeBinding"),
    _predicate("MaxCSIVolumeCountPred", "NodeVolumeLimits"),
    *(
        _predicate(name, "NodeVolumeLimits", change=Change.APPROXIMATED, note=_MIGRATED)
        for name in (
            "MaxEBSVolumeCount",
            "MaxGCEPDVolumeCount",
            "MaxAzureDiskVolumeCount",
            "MaxCinderVolumeCount",
        )
    ),
    _predicate("MatchInterPodAffinity", POD_AFFINITY),
    _predicate("EvenPodsSpread", SPREAD),
    *(
        _predicate(name, "TaintToleration", "NodeUnschedulable", change=Change.APPROXIMATED, note=_CONDITIONS)
        for name in (
            "CheckNodeCondition",
            "CheckNodeMemoryPressure",
            "CheckNodeDiskPressure",
            "CheckNodePIDPressure",
        )
    ),
    _predicate(
        "PodToleratesNodeNoExecuteTaints",
        "TaintToleration",
        change=Change.APPROXIMATED,
        note="all taints that keep pods off a node count",
    ),
)

PRIORITIES: Final[tuple[Row, ...]] = (
    _priority("LeastRequestedPriority", FIT, note=_OF_FIT, strategy=LEAST),
    _priority("MostRequestedPriority", FIT, note=_OF_FIT, strategy=MOST),
    _priority("RequestedToCapacityRatioPriority", FIT, note=_OF_FIT, strategy=RATIO),
    _priority("BalancedResourceAllocation", "NodeResourcesBalancedAllocation"),
    _priority("SelectorSpreadPriority", SPREAD, change=Change.APPROXIMATED, note=_SPREADS),
    _priority("ServiceSpreadingPriority", SPREAD, change=Change.APPROXIMATED, note=_SPREADS),
    _priority("EvenPodsSpreadPriority", SPREAD),
    _priority("InterPodAffinityPriority", POD_AFFINITY),
    _priority("NodeAffinityPriority", AFFINITY),
    _priority("TaintTolerationPriority", "TaintToleration"),
    _priority("ImageLocalityPriority", "ImageLocality"),
    _priority("NodePreferAvoidPodsPriority", change=Change.DROPPED, note=_AVOID),
    _priority(
        "ResourceLimitsPriority", change=Change.DROPPED, note="limits have no part in scoring any more"
    ),
    _priority(
        "EqualPriority",
        change=Change.DROPPED,
        note="it gave every node the same score, which decides nothing",
    ),
)

ARGUMENTS: Final[tuple[Row, ...]] = (
    _predicate(LABELS_PRESENCE, AFFINITY, change=Change.EXACT, note=_LABELS),
    _predicate(SERVICE_AFFINITY, change=Change.DROPPED, note=_SERVICES),
    _priority(LABEL_PREFERENCE, AFFINITY, change=Change.APPROXIMATED, note=_LABELS),
    _priority(SERVICE_ANTI_AFFINITY, change=Change.DROPPED, note=_SERVICES),
    _priority(RATIO_ARGUMENTS, FIT, note=_OF_FIT, strategy=RATIO),
)
"""Arguments that define a predicate or priority under any name."""

TABLE: Final[tuple[Row, ...]] = (*FIELDS, *POINTS, *PLUGINS, *PREDICATES, *PRIORITIES, *ARGUMENTS)

_BY_NAME: Final[Mapping[tuple[Subject, str], Row]] = {(row.subject, row.name): row for row in TABLE}

UNREAD_POINTS: Final[Mapping[Form, frozenset[str]]] = {
    Form.V1BETA2: frozenset({"multiPoint", "preEnqueue"}),
}
"""Points that a version had as fields (since 1.23 and 1.26), but ignored when it merged the plugins."""

MANDATORY_PREDICATES: Final = ("PodToleratesNodeTaints", "CheckNodeUnschedulable")
"""The predicates that kube-scheduler added to every policy."""

DEFAULT_WEIGHTS_BEFORE_V1BETA3: Final[Mapping[str, int]] = {
    "TaintToleration": 1,
    AFFINITY: 1,
    POD_AFFINITY: 1,
}
"""The default score weights that v1beta3 raised; other default weights are the same in v1."""


def row_of(subject: Subject, name: str) -> Row | None:
    """Return the row of a name; None if the name did not change."""
    return _BY_NAME.get((subject, name))


def field_row(name: str) -> Row:
    """Return the row of a field. Raises KeyError for a field that did not change."""
    return _BY_NAME[Subject.FIELD, name]
