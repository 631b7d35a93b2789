"""The `pluginConfig` of one profile of an older form -> the `pluginConfig` of v1.

Arguments of a plugin that became a part of another plugin move into the arguments of the other plugin. All
other arguments stay unchanged, with the apiVersion of v1. `component` and `policy` call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Final

from berth_host.config.decoding.args_v1 import ARGS_TYPES
from berth_host.config.decoding.types_v1 import API_VERSION, GROUP
from berth_host.config.source.node import Json, SourceNode
from berth_host.older_config.nodes import (
    field_of,
    list_of,
    node_of,
    number_of,
    object_of,
    text_of,
    with_fields,
)
from berth_host.older_config.plugin_sets import PluginSets
from berth_host.older_config.table import (
    AFFINITY,
    FIT,
    LEAST,
    RATIO,
    SPREAD,
    Change,
    Row,
    Subject,
    field_row,
    row_of,
)
from berth_host.older_config.warnings import Remarks

_MAX_TERM_WEIGHT: Final = 100
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_NODE_LABEL_FIELDS: Final = (
    ("presentLabels", True, "filter"),
    ("absentLabels", False, "filter"),
    ("presentLabelsPreference", True, "score"),
    ("absentLabelsPreference", False, "score"),
)
"""The arguments of NodeLabel: the name, True if the labels have to be present, the point that reads them."""


@dataclass(frozen=True, slots=True)
class PreferredLabel:
    """A label whose presence or absence is preferred; `weight` counts relative to the other labels only."""

    key: str
    is_present: bool
    weight: int = 1


@dataclass(slots=True)
class LabelRules:
    """The rules of NodeLabel: labels that must be present, must be absent, or are preferred."""

    required: list[tuple[str, bool]] = field(default_factory=list)
    preferred: list[PreferredLabel] = field(default_factory=list)

    def added_affinity(self) -> dict[str, Json]:
        """Return the rules as `addedAffinity` of NodeAffinity; empty without rules."""
        found: dict[str, Json] = {}
        if self.required:
            expressions: list[Json] = [_expression(key, present) for key, present in self.required]
            found[_REQUIRED] = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        if self.preferred:
            found[_PREFERRED] = [
                {
                    "weight": weight,
                    "preference": {"matchExpressions": [_expression(label.key, label.is_present)]},
                }
                for label, weight in zip(self.preferred, self._term_weights(), strict=True)
            ]
        return found

    def _term_weights(self) -> list[int]:
        """Return the weights, scaled to the 1 to 100 that a term of a node affinity may have."""
        weights = [label.weight for label in self.preferred]
        common, highest = gcd(*weights), max(weights)
        if highest // common <= _MAX_TERM_WEIGHT:
            return [weight // common for weight in weights]
        return [max(1, weight * _MAX_TERM_WEIGHT // highest) for weight in weights]


def _expression(key: str, present: bool) -> Json:
    return {"key": key, "operator": "Exists" if present else "DoesNotExist"}


@dataclass(slots=True)
class PluginArgs:
    """The arguments of one profile by plugin, while they are converted, in the order of the file.

    `repeated`: further entries for a plugin that has one already; v1 refuses them.
    """

    path: str
    remarks: Remarks
    entries: dict[str, SourceNode] = field(default_factory=dict)
    repeated: list[SourceNode] = field(default_factory=list)

    def put(self, plugin: str, path: str, line: int, **fields: SourceNode) -> None:
        """Add fields to the arguments of a plugin. An existing field stays unchanged, with a warning."""
        entry = self.entries.get(plugin)
        args = None if entry is None else field_of(entry, "args")
        args = args if args is not None else object_of({}, line)
        for name, node in fields.items():
            if field_of(args, name) is not None:
                text = f"dropped: the arguments of {plugin} have their own {name}"
                self.remarks.say(text, path, line, change=Change.DROPPED)
            else:
                args = with_fields(args, **{name: node})
        entry = entry or object_of({"name": SourceNode(plugin, line)}, line)
        self.entries[plugin] = with_fields(entry, args=args)

    def node(self, line: int) -> SourceNode | None:
        """Return the `pluginConfig`; None if there is none."""
        nodes = [*self.entries.values(), *self.repeated]
        return list_of(nodes, nodes[0].line) if nodes else None


def read_plugin_args(
    plugin_config: SourceNode | None, path: str, sets: PluginSets, remarks: Remarks
) -> PluginArgs:
    """Read and convert the `pluginConfig` of a profile whose plugin lists are converted already."""
    args = PluginArgs(path=path, remarks=remarks)
    later: list[tuple[int, SourceNode, Row]] = []
    for index, entry in enumerate(plugin_config.items if plugin_config is not None else ()):
        row = row_of(Subject.PLUGIN, text_of(entry, "name"))
        if row is not None:
            later.append((index, entry, row))
        elif text_of(entry, "name") in args.entries:
            args.repeated.append(entry)
        else:
            args.entries[text_of(entry, "name")] = _current(entry, f"{path}[{index}].args", remarks)
    for index, entry, row in later:
        _move(args, entry, row, f"{path}[{index}]", sets)
    if sets.strategy not in (None, LEAST, RATIO) and "scoringStrategy" not in _fit_fields(args):
        _put_strategy(args, sets.strategy, None, path, sets.line)
    if sets.strategy == RATIO and "scoringStrategy" not in _fit_fields(args):
        message = "RequestedToCapacityRatio is enabled without arguments: it needs a shape"
        raise remarks.refusal(message, path, SourceNode(None, sets.line))
    return args


def _current(entry: SourceNode, path: str, remarks: Remarks) -> SourceNode:
    """Return the entry of a plugin that v1 still has, with the apiVersion of v1 in its arguments."""
    name, args = text_of(entry, "name"), field_of(entry, "args")
    if args is None or f"{name}Args" not in ARGS_TYPES or not args.members:
        return entry
    if text_of(args, "apiVersion") == f"{GROUP}/{remarks.form}":
        line = args.line_of("apiVersion")
        remarks.changed(field_row("apiVersion"), f"{path}.apiVersion", line)
        args = with_fields(args, apiVersion=SourceNode(API_VERSION, line))
    row = field_row("PodTopologySpreadArgs.defaultConstraints")
    constraints = field_of(args, "defaultConstraints")
    is_old_default = name == SPREAD and remarks.form in row.forms and not text_of(args, "defaultingType")
    if is_old_default and constraints is not None and constraints.items:
        remarks.changed(row, f"{path}.defaultConstraints", constraints.line, what="defaultConstraints")
        args = with_fields(args, defaultingType=SourceNode("List", constraints.line))
    return with_fields(entry, args=args)


def _move(args: PluginArgs, entry: SourceNode, row: Row, path: str, sets: PluginSets) -> None:
    """Move the arguments of a plugin to the plugin that replaces it in v1."""
    remarks = args.remarks
    given = field_of(entry, "args") or object_of({}, entry.line)
    what = f"arguments of {row.name}"
    if row.strategy is not None and row.strategy == sets.strategy and remarks.form in row.forms:
        remarks.changed(row, path, entry.line, what=what)
        _put_strategy(args, row.strategy, given, path, entry.line)
    elif row.becomes == (AFFINITY,) and sets.node_label_points:
        remarks.changed(row, path, entry.line, what=what)
        put_label_rules(args, _label_rules(given, path, sets, remarks), path, entry.line)
    elif row.change is Change.DROPPED:
        remarks.changed(row, path, entry.line, what=what)
    else:
        reason = "the profile does not score by it" if row.strategy else "the profile does not enable it"
        remarks.say(f"{what} are dropped: {reason}", path, entry.line)


def _label_rules(given: SourceNode, path: str, sets: PluginSets, remarks: Remarks) -> LabelRules:
    """Return NodeLabel's rules at the points where it was enabled. Labels for other points had no effect."""
    rules = LabelRules()
    for name, is_present, point in _NODE_LABEL_FIELDS:
        labels = _labels(given, name, is_present)
        if labels and point not in sets.node_label_points:
            line = given.line_of(name)
            remarks.say(f"{name} is dropped: NodeLabel is not enabled at {point}", f"{path}.args", line)
        elif point == "filter":
            rules.required += labels
        else:
            rules.preferred += [PreferredLabel(key, present) for key, present in labels]
    return rules


def _labels(args: SourceNode, name: str, present: bool) -> Sequence[tuple[str, bool]]:
    node = field_of(args, name)
    return [(str(item.value or ""), present) for item in node.items] if node is not None else []


def put_label_rules(args: PluginArgs, rules: LabelRules, path: str, line: int) -> None:
    """Add the rules of NodeLabel to the arguments of NodeAffinity."""
    added = rules.added_affinity()
    if added:
        args.put(AFFINITY, path, line, addedAffinity=node_of(added, line))


def _fit_fields(args: PluginArgs) -> Iterable[str]:
    entry = args.entries.get(FIT)
    given = None if entry is None else field_of(entry, "args")
    return () if given is None else given.members


def _put_strategy(
    args: PluginArgs, strategy: str | None, given: SourceNode | None, path: str, line: int
) -> None:
    put_strategy(
        args,
        strategy or LEAST,
        None if given is None else field_of(given, "resources"),
        None if given is None else field_of(given, "shape"),
        path,
        line,
    )


def put_strategy(
    args: PluginArgs,
    strategy: str,
    resources: SourceNode | None,
    shape: SourceNode | None,
    path: str,
    line: int,
) -> None:
    """Add a scoringStrategy to the arguments of NodeResourcesFit.

    Resources without a weight were not scored, so they are dropped.
    """
    node = node_of({"type": strategy}, line)
    if resources is not None and resources.items:
        node = with_fields(node, resources=_scored(resources, strategy, path, args.remarks))
    if shape is not None:
        node = with_fields(node, requestedToCapacityRatio=object_of({"shape": shape}, shape.line))
    args.put(FIT, path, line, scoringStrategy=node)


def _scored(resources: SourceNode, strategy: str, path: str, remarks: Remarks) -> SourceNode:
    kept = [item for item in resources.items if number_of(item, "weight")]
    if strategy == RATIO or not kept:
        return resources
    for item in resources.items:
        if not number_of(item, "weight"):
            name = text_of(item, "name")
            remarks.say(f"resource {name} is dropped: without a weight it was not scored", path, item.line)
    return list_of(kept, resources.line)
