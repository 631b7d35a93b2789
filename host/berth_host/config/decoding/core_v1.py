"""The few core/v1 and meta/v1 types that plugin arguments contain, with that API's tags.

Source: `staging/src/k8s.io/api/core/v1/types.go`, `apimachinery/pkg/apis/meta/v1/types.go`, v1.36.
"""

# RUF009 is off: json_field returns a dataclass field, and its default values are immutable.
# ruff: noqa: RUF009

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from berth_host.config.decoding.go_types import (
    INT32,
    STRING,
    json_field,
    map_of,
    pointer_to,
    slice_of,
    struct_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementV1:
    """A condition on a label or field (NodeSelectorRequirement, LabelSelectorRequirement)."""

    key: str = json_field("key", STRING)
    operator: str = json_field("operator", STRING)
    values: tuple[str, ...] | None = json_field("values", slice_of(STRING), omit_empty=True)


_REQUIREMENTS = slice_of(struct_of(RequirementV1))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelectorTermV1:
    """Conditions of which all must hold."""

    match_expressions: tuple[RequirementV1, ...] | None = json_field(
        "matchExpressions", _REQUIREMENTS, omit_empty=True
    )
    match_fields: tuple[RequirementV1, ...] | None = json_field("matchFields", _REQUIREMENTS, omit_empty=True)


_TERM = struct_of(NodeSelectorTermV1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelectorV1:
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTermV1, ...] | None = json_field(
        "nodeSelectorTerms", slice_of(_TERM)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredSchedulingTermV1:
    """A term that adds its weight to a node's score."""

    weight: int = json_field("weight", INT32)
    preference: NodeSelectorTermV1 = json_field("preference", _TERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAffinityV1:
    """The nodes that a pod requires and prefers."""

    required: NodeSelectorV1 | None = json_field(
        "requiredDuringSchedulingIgnoredDuringExecution",
        pointer_to(struct_of(NodeSelectorV1)),
        omit_empty=True,
    )
    preferred: tuple[PreferredSchedulingTermV1, ...] | None = json_field(
        "preferredDuringSchedulingIgnoredDuringExecution",
        slice_of(struct_of(PreferredSchedulingTermV1)),
        omit_empty=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSelectorV1:
    """Conditions on labels; an empty one matches everything."""

    match_labels: Mapping[str, str] | None = json_field("matchLabels", map_of(STRING), omit_empty=True)
    match_expressions: tuple[RequirementV1, ...] | None = json_field(
        "matchExpressions", _REQUIREMENTS, omit_empty=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySpreadConstraintV1:
    """A topology spread constraint of core/v1."""

    max_skew: int = json_field("maxSkew", INT32)
    topology_key: str = json_field("topologyKey", STRING)
    when_unsatisfiable: str = json_field("whenUnsatisfiable", STRING)
    label_selector: LabelSelectorV1 | None = json_field(
        "labelSelector", pointer_to(struct_of(LabelSelectorV1)), omit_empty=True
    )
    min_domains: int | None = json_field("minDomains", pointer_to(INT32), omit_empty=True)
    node_affinity_policy: str | None = json_field("nodeAffinityPolicy", pointer_to(STRING), omit_empty=True)
    node_taints_policy: str | None = json_field("nodeTaintsPolicy", pointer_to(STRING), omit_empty=True)
    match_label_keys: tuple[str, ...] | None = json_field("matchLabelKeys", slice_of(STRING), omit_empty=True)
