"""Kind Policy: predicates, priorities, extenders -> v1, as kube-scheduler up to 1.22 read them.

Without a list, the default plugins run. With a list, only the plugins that it names run. Plugins that are
newer than policies stay enabled, as no policy could name them. `conversion` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from berth_host.config.decoding.types_v1 import API_VERSION, KIND
from berth_host.config.default_plugins import DEFAULT_PLUGINS, MULTI_POINT
from berth_host.config.errors import ConfigurationError, FieldErrorType, Finding, nearest
from berth_host.config.source.node import Member, SourceNode
from berth_host.older_config.extenders import convert_extenders
from berth_host.older_config.nodes import field_of, list_of, node_of, number_of, object_of, text_of
from berth_host.older_config.plugin_args import (
    LabelRules,
    PluginArgs,
    PreferredLabel,
    put_label_rules,
    put_strategy,
)
from berth_host.older_config.plugin_sets import Entry, PluginSets, keep_default_weights
from berth_host.older_config.table import (
    ARGUMENTS,
    FIT,
    LABEL_PREFERENCE,
    LABELS_PRESENCE,
    MANDATORY_PREDICATES,
    POD_AFFINITY,
    PREDICATES,
    PRIORITIES,
    RATIO,
    RATIO_ARGUMENTS,
    SPREAD,
    Change,
    Row,
    Subject,
    field_row,
    row_of,
)
from berth_host.older_config.warnings import Remarks

_FILTERING: Final = frozenset(name for row in PREDICATES for name in row.becomes)
_SCORING: Final = frozenset(name for row in PRIORITIES for name in row.becomes)
_SCORE_POINTS: Final = ("preScore", "score")
_POINTS_IN_ORDER: Final = (MULTI_POINT, "preFilter", "filter", *_SCORE_POINTS)
_NOT_OF_POLICIES: Final = ("placementScore",)
_LIKING: Final = row_of(Subject.PRIORITY, LABEL_PREFERENCE)
_MAX_WEIGHT: Final = 2**31 - 1
_NAMED_BY_ARGUMENT: Final = frozenset({"RequestedToCapacityRatioPriority"})
"""Names of the table that no release had built in; the argument defines their meaning."""
_SYSTEM_SPREADING: Final = ("SelectorSpreadPriority", "ServiceSpreadingPriority")


@dataclass(frozen=True, slots=True)
class _Scored:
    """A priority of the policy: its row in the table, its weight and its place in the file."""

    row: Row
    weight: int
    path: str
    node: SourceNode


@dataclass(slots=True)
class _Selection:
    """The selections of a policy. `filtering` or `scoring` None: no list, so the defaults count.

    `liked`: all priorities for labels as one, with the sum of their weights.
    """

    filtering: set[str] | None = None
    scoring: dict[str, _Scored] | None = None
    liked: _Scored | None = None
    rules: LabelRules = field(default_factory=LabelRules)
    strategy: _Scored | None = None
    spreads_services: bool = False


@dataclass(frozen=True, slots=True)
class PolicyParts:
    """A policy as parts of one profile. `extenders`: the converted list; None without one."""

    sets: PluginSets
    args: PluginArgs
    extenders: SourceNode | None


def policy_parts(root: SourceNode, remarks: Remarks) -> PolicyParts:
    """Read a policy whose shape was checked. Raises ConfigurationError for unknown names."""
    remarks.changed(field_row("kind Policy"), "kind", root.line_of("kind"), what="the policy")
    selection = _Selection()
    findings = [*_read_predicates(root, selection, remarks), *_read_priorities(root, selection, remarks)]
    if findings:
        raise ConfigurationError("validation", findings, source=remarks.source)
    sets = _plugin_sets(root, selection, remarks)
    args = _plugin_args(root, selection, remarks)
    always = root.members.get("alwaysCheckAllPredicates")
    if always is not None:
        remarks.changed(field_row("alwaysCheckAllPredicates"), "alwaysCheckAllPredicates", always.key_line)
    extenders = field_of(root, "extenders")
    return PolicyParts(sets, args, None if extenders is None else convert_extenders(extenders, remarks))


def convert_policy(root: SourceNode, remarks: Remarks) -> SourceNode:
    """Return the policy as a v1 document of one profile. Raises ConfigurationError for unknown names."""
    parts = policy_parts(root, remarks)
    line = root.line_of("apiVersion")
    members = {
        "apiVersion": Member(line, SourceNode(API_VERSION, line)),
        "kind": Member(root.line_of("kind"), SourceNode(KIND, root.line_of("kind"))),
    }
    profile = {
        name: node
        for name, node in (("plugins", parts.sets.node()), ("pluginConfig", parts.args.node(root.line)))
        if node is not None
    }
    if profile:
        members["profiles"] = Member(root.line, list_of([object_of(profile, root.line)], root.line))
    if parts.extenders is not None:
        members["extenders"] = Member(root.members["extenders"].key_line, parts.extenders)
    return SourceNode.of_mapping(members, root.line, ())


def _read_predicates(root: SourceNode, selection: _Selection, remarks: Remarks) -> Iterator[Finding]:
    given = field_of(root, "predicates")
    if given is None:
        return
    selection.filtering = set()
    for index, item in enumerate(given.items):
        path = f"predicates[{index}]"
        wrong = _wrong_argument(item, path, Subject.PREDICATE)
        row = _row(item, Subject.PREDICATE)
        if wrong is not None:
            yield wrong
            continue
        if row is None:
            yield _unknown(item, path, Subject.PREDICATE, PREDICATES)
            continue
        remarks.changed(row, path, item.line, what=_shown(item, row))
        _say_unread_argument(item, row, path, remarks)
        selection.filtering |= set(row.becomes)
        presence = _argument(item, LABELS_PRESENCE)
        if presence is not None and row.name == LABELS_PRESENCE:
            labels = field_of(presence, "labels")
            is_present = _is_true(presence, "presence")
            keys = [str(label.value or "") for label in labels.items] if labels is not None else []
            selection.rules.required += [(key, is_present) for key in keys]
            _say_filters_by_affinity(root, path, item, remarks)
    for name in MANDATORY_PREDICATES:
        row = row_of(Subject.PREDICATE, name)
        missing = set(row.becomes) - selection.filtering if row is not None else set()
        selection.filtering |= missing
        for plugin in sorted(missing):
            remarks.say(f"{plugin} stays on: every policy had {name}", "predicates", given.line)


def _say_filters_by_affinity(root: SourceNode, path: str, item: SourceNode, remarks: Remarks) -> None:
    names = {text_of(one, "name") for one in root.members["predicates"].node.items}
    if not names & {"MatchNodeSelector", "GeneralPredicates"}:
        text = "NodeAffinity also checks the selectors of pods, which this policy did not"
        remarks.say(text, path, item.line, change=Change.APPROXIMATED)


def _read_priorities(root: SourceNode, selection: _Selection, remarks: Remarks) -> Iterator[Finding]:
    given = field_of(root, "priorities")
    if given is None:
        return
    selection.scoring = {}
    for index, item in enumerate(given.items):
        path = f"priorities[{index}]"
        row = _row(item, Subject.PRIORITY)
        weight = number_of(item, "weight") or 0
        wrong = _wrong_argument(item, path, Subject.PRIORITY)
        if wrong is not None:
            yield wrong
        elif row is None:
            yield _unknown(item, path, Subject.PRIORITY, PRIORITIES)
        elif not 0 < weight <= _MAX_WEIGHT:
            message = f'Priority "{text_of(item, "name")}" should have a positive weight applied to it'
            message += f", of at most {_MAX_WEIGHT}"
            yield Finding(message, f"{path}.weight", FieldErrorType.INVALID, item.line_of("weight"))
        else:
            remarks.changed(row, path, item.line, what=_shown(item, row))
            _say_unread_argument(item, row, path, remarks)
            _select_priority(selection, _Scored(row, weight, path, item), remarks)
    liked = selection.liked
    if liked is not None and liked.weight > _MAX_WEIGHT:
        message = f"the weights of all {LABEL_PREFERENCE} add up to {liked.weight}, more than {_MAX_WEIGHT}"
        yield Finding(message, f"{liked.path}.weight", FieldErrorType.INVALID, liked.node.line_of("weight"))
    strategy = selection.strategy
    is_ratio = strategy is not None and strategy.row.strategy == RATIO
    if strategy is not None and is_ratio and _argument(strategy.node, RATIO_ARGUMENTS) is None:
        message = f"RequestedToCapacityRatioPriority needs {RATIO_ARGUMENTS} with a shape"
        yield Finding(message, f"{strategy.path}.argument", FieldErrorType.REQUIRED, strategy.node.line)


def _select_priority(selection: _Selection, found: _Scored, remarks: Remarks) -> None:
    scoring = selection.scoring if selection.scoring is not None else {}
    if found.row.name == LABEL_PREFERENCE:
        found = _like(selection, found)
    selection.spreads_services |= text_of(found.node, "name") in _SYSTEM_SPREADING
    for plugin in found.row.becomes:
        known = scoring.get(plugin)
        is_sum = known is not None and known.row is found.row is _LIKING
        kept = found if known is None or is_sum or found.weight > known.weight else known
        scoring[plugin] = kept
        if known is not None and not is_sum:
            text = f"{plugin} has one weight: the {kept.weight} of {text_of(kept.node, 'name')} counts"
            remarks.say(text, found.path, found.node.line, change=Change.APPROXIMATED)
        if plugin == FIT:
            _select_strategy(selection, found, kept, remarks)


def _like(selection: _Selection, found: _Scored) -> _Scored:
    """Add a preferred label. Each label had its own weight, so the plugin's weight is the sum of them."""
    preference = _argument(found.node, LABEL_PREFERENCE)
    if preference is not None:
        label, is_present = text_of(preference, "label"), _is_true(preference, "presence")
        selection.rules.preferred.append(PreferredLabel(label, is_present, found.weight))
    before = selection.liked.weight if selection.liked is not None else 0
    selection.liked = replace(found, weight=before + found.weight)
    return selection.liked


def _select_strategy(selection: _Selection, found: _Scored, kept: _Scored, remarks: Remarks) -> None:
    known = selection.strategy
    selection.strategy = kept
    if known is not None and (known.row.strategy != found.row.strategy or found.row.strategy == RATIO):
        of = text_of(kept.node, "name")
        text = f"NodeResourcesFit has one scoringStrategy: {kept.row.strategy} of {of}; the other is dropped"
        remarks.say(text, found.path, found.node.line, change=Change.DROPPED)


def _row(item: SourceNode, subject: Subject) -> Row | None:
    """Return the row of the item's name, or of its argument if the name was not built in (1.18 to 1.22)."""
    name = text_of(item, "name")
    named = row_of(subject, name)
    if named in ARGUMENTS:
        named = None
    if named is not None and name not in _NAMED_BY_ARGUMENT:
        return named
    by_argument = (row for row in ARGUMENTS if row.subject is subject and _argument(item, row.name))
    return next(by_argument, named)


def _wrong_argument(item: SourceNode, path: str, subject: Subject) -> Finding | None:
    argument = field_of(item, "argument")
    if argument is None:
        return None
    given = [name for name in argument.members if field_of(argument, name) is not None]
    if len(given) == 1:
        return None
    known = " or ".join(row.name for row in ARGUMENTS if row.subject is subject)
    message = f"an argument has exactly one field, {known}; here are {len(given)}"
    return Finding(message, f"{path}.argument", FieldErrorType.INVALID, argument.line)


def _say_unread_argument(item: SourceNode, row: Row, path: str, remarks: Remarks) -> None:
    """Warn of an argument beside a built-in name. Before 1.18 the argument counted, later the name."""
    given = next((one.name for one in ARGUMENTS if one is not row and _argument(item, one.name)), None)
    is_ratio = given == RATIO_ARGUMENTS and row.strategy == RATIO
    if given is not None and not is_ratio:
        name = text_of(item, "name")
        text = (
            f"{given} is dropped: {name} is built in, so 1.18 and later do not read it; give it another name"
        )
        remarks.say(text, f"{path}.argument", item.line_of("argument"))


def _argument(item: SourceNode, name: str) -> SourceNode | None:
    argument = field_of(item, "argument")
    return None if argument is None else field_of(argument, name)


def _is_true(node: SourceNode, name: str) -> bool:
    found = field_of(node, name)
    return found is not None and found.value is True


def _shown(item: SourceNode, row: Row) -> str:
    name = text_of(item, "name")
    return f"{row.subject} {name}" if name == row.name else f"{row.subject} {name} ({row.name})"


def _unknown(item: SourceNode, path: str, subject: Subject, rows: Sequence[Row]) -> Finding:
    name = text_of(item, "name")
    return Finding(
        f'there was no {subject} "{name}", and it has no argument that makes it one',
        f"{path}.name",
        FieldErrorType.NOT_SUPPORTED,
        item.line_of("name"),
        nearest(name, (row.name for row in rows)),
    )


def _plugin_sets(root: SourceNode, selection: _Selection, remarks: Remarks) -> PluginSets:
    sets = PluginSets(path="", line=root.line)
    for point in _POINTS_IN_ORDER:
        sets.at(point)
    if selection.scoring is None:
        sets.path = "priorities"
        keep_default_weights(sets, remarks)
    for plugin in DEFAULT_PLUGINS:
        name = plugin.name
        if name not in _FILTERING | _SCORING:
            continue
        filters = selection.filtering is None or name in selection.filtering
        scores = selection.scoring is None or name in selection.scoring
        score_points = [point for point in _SCORE_POINTS if point in plugin.points and name in _SCORING]
        filter_points = sorted(plugin.points - {*score_points, *_NOT_OF_POLICIES})
        off = [
            *(filter_points if name in _FILTERING and not filters else ()),
            *(score_points if name in _SCORING and not scores else ()),
        ]
        is_whole = set(off) == plugin.points - {*_NOT_OF_POLICIES}
        for point in (MULTI_POINT,) if is_whole else off:
            line = root.line_of("predicates" if point not in _SCORE_POINTS else "priorities")
            sets.at(point).disabled.append(Entry(name, None, line))
        if selection.scoring is not None and name in selection.scoring:
            found = selection.scoring[name]
            sets.at("score").enabled.append(Entry(name, found.weight, found.node.line))
    return sets


def _plugin_args(root: SourceNode, selection: _Selection, remarks: Remarks) -> PluginArgs:
    args = PluginArgs(path="", remarks=remarks)
    put_label_rules(args, selection.rules, "predicates", root.line)
    strategy = selection.strategy
    if strategy is not None and strategy.row.strategy is not None:
        given = _argument(strategy.node, RATIO_ARGUMENTS)
        resources, shape = (
            None if given is None else field_of(given, name) for name in ("resources", "shape")
        )
        put_strategy(args, strategy.row.strategy, resources, shape, strategy.path, strategy.node.line)
    if selection.scoring is not None and SPREAD in selection.scoring and not selection.spreads_services:
        # EvenPodsSpreadPriority alone did not spread pods without constraints of their own.
        line = selection.scoring[SPREAD].node.line
        args.put(SPREAD, "priorities", line, defaultingType=node_of("List", line))
    name = "hardPodAffinitySymmetricWeight"
    if number_of(root, name):
        line = root.members[name].key_line
        remarks.changed(field_row(name), name, line)
        args.put(POD_AFFINITY, name, line, hardPodAffinityWeight=root.members[name].node)
    elif field_of(root, name) is not None:
        remarks.say("dropped: 0 meant the default, 1", name, root.members[name].key_line)
    if FIT not in args.entries and _ignores_resources(root):
        # The resources that extenders ignore become an argument of this plugin, even if it is disabled.
        args.put(FIT, "extenders", root.line_of("extenders"))
    return args


def _ignores_resources(root: SourceNode) -> bool:
    extenders = field_of(root, "extenders")
    return any(
        _is_true(resource, "ignoredByScheduler")
        for extender in (extenders.items if extenders is not None else ())
        if (resources := field_of(extender, "managedResources")) is not None
        for resource in resources.items
    )
