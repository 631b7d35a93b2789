"""The plugin lists of one profile of an older form -> plugin sets of v1.

Converts points that moved, plugins that were renamed, merged or removed, bare lists, and default weights
that changed since. `component` and `policy` call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from berth_host.config.default_plugins import DEFAULT_PLUGINS, DEFAULT_PLUGINS_BY_NAME, MULTI_POINT
from berth_host.config.errors import ConfigurationError
from berth_host.config.source.node import SourceNode
from berth_host.older_config.nodes import field_of, list_of, number_of, object_of, text_of
from berth_host.older_config.table import (
    AFFINITY,
    COMPONENT_FORMS,
    DEFAULT_WEIGHTS_BEFORE_V1BETA3,
    FIT,
    POINTS,
    SPREAD,
    UNREAD_POINTS,
    Change,
    Form,
    Row,
    Subject,
    field_row,
    row_of,
)
from berth_host.older_config.warnings import Remarks

ALL: Final = "*"
LEAST_PLUGIN: Final = "NodeResourcesLeastAllocated"
MOST_PLUGIN: Final = "NodeResourcesMostAllocated"
"""The plugins that the two algorithm providers scored with by default."""
_WEIGHTED_BEFORE_V1BETA3: Final = COMPONENT_FORMS - {Form.V1BETA3} | {Form.POLICY}


@dataclass(frozen=True, slots=True)
class Entry:
    """One plugin in a list. `weight` None: not given. `older`: the name in the older form, if it changed."""

    name: str
    weight: int | None
    line: int
    older: str | None = None

    def node(self) -> SourceNode:
        """Return the entry as a source node."""
        fields = {"name": SourceNode(self.name, self.line)}
        if self.weight is not None:
            fields["weight"] = SourceNode(self.weight, self.line)
        return object_of(fields, self.line)


@dataclass(slots=True)
class PluginSet:
    """The plugins enabled and disabled at a point, while it is converted."""

    enabled: list[Entry] = field(default_factory=list)
    disabled: list[Entry] = field(default_factory=list)

    def disables(self, name: str) -> bool:
        """Return True if the default plugin `name` is disabled at this point."""
        return any(entry.name in (name, ALL) for entry in self.disabled)

    def enabled_entry(self, name: str) -> Entry | None:
        """Return the entry that enables the plugin `name`, or None."""
        return next((entry for entry in self.enabled if entry.name == name), None)


@dataclass(slots=True)
class PluginSets:
    """The sets of one profile by point. `path`: of the sets in the older file, for warnings.

    `strategy`: the scoringStrategy by which NodeResourcesFit scores; None if it does not score.
    `default_scorer`: the plugin that scored resources by default.
    `node_label_points`: the points at which NodeLabel is enabled. NodeAffinity takes over its rules.
    """

    path: str
    line: int
    points: dict[str, PluginSet] = field(default_factory=dict)
    strategy: str | None = None
    default_scorer: str = LEAST_PLUGIN
    node_label_points: set[str] = field(default_factory=set)

    def at(self, point: str) -> PluginSet:
        """Return the set of a point; make it if there is none."""
        return self.points.setdefault(point, PluginSet())

    def node(self) -> SourceNode | None:
        """Return the `plugins` of the profile; None if they are the defaults."""
        fields = {}
        for point, plugin_set in self.points.items():
            lists = {
                name: list_of((entry.node() for entry in entries), entries[0].line)
                for name, entries in (("enabled", plugin_set.enabled), ("disabled", plugin_set.disabled))
                if entries
            }
            if lists:
                fields[point] = object_of(lists, next(iter(lists.values())).line)
        return object_of(fields, self.line) if fields else None


def read_plugin_sets(
    plugins: SourceNode | None, path: str, line: int, remarks: Remarks, default_scorer: str = LEAST_PLUGIN
) -> PluginSets:
    """Read and convert the `plugins` of a profile. Raises ConfigurationError for a removed plugin.

    `default_scorer`: the plugin that scored resources if `plugins` did not change that.
    """
    sets = PluginSets(path, line if plugins is None else plugins.line, default_scorer=default_scorer)
    for point, member in (plugins.members if plugins is not None else {}).items():
        if point in UNREAD_POINTS.get(remarks.form, ()):
            text = f"dropped: {remarks.form} had the field and did not read it; v1 reads it"
            remarks.say(text, f"{path}.{point}", member.key_line)
        elif member.node.value is not None:
            sets.points[point] = _read_set(member.node, f"{path}.{point}", remarks)
    _warn_of_replaced_preparation(sets, plugins, remarks)
    _move_points(sets, remarks)
    for point, plugin_set in sets.points.items():
        _convert_set(sets, point, plugin_set, remarks)
    if remarks.form in _WEIGHTED_BEFORE_V1BETA3:
        _choose_strategy(sets, remarks)
        keep_default_weights(sets, remarks)
    return sets


def _warn_of_replaced_preparation(sets: PluginSets, plugins: SourceNode | None, remarks: Remarks) -> None:
    """Warn of a bare list at preFilter that lacks default plugins which need their PreFilter to filter."""
    given = None if plugins is None else field_of(plugins, "preFilter")
    if given is None or not isinstance(given.value, tuple):
        return
    filtering = sets.points.get("filter", PluginSet())
    listed = {entry.name for entry in sets.points["preFilter"].enabled}
    unprepared = [
        plugin.name
        for plugin in DEFAULT_PLUGINS
        if {"preFilter", "filter"} <= plugin.points
        and plugin.name not in listed
        and not filtering.disables(plugin.name)
    ]
    if unprepared:
        text = f"{', '.join(unprepared)} filter without their preFilter, which the list leaves out"
        remarks.say(text, f"{sets.path}.preFilter", given.line)


def _read_set(node: SourceNode, path: str, remarks: Remarks) -> PluginSet:
    if isinstance(node.value, tuple):
        row = field_row("plugins.*[] (a bare list)")
        remarks.changed(row, path, node.line, what="the bare list")
        return PluginSet(_entries(node.items), [Entry(ALL, None, node.line)])
    lists = [field_of(node, name) for name in ("enabled", "disabled")]
    return PluginSet(*(_entries(() if one is None else one.items) for one in lists))


def _entries(items: Iterable[SourceNode]) -> list[Entry]:
    return [Entry(text_of(item, "name"), number_of(item, "weight"), item.line) for item in items]


def _move_points(sets: PluginSets, remarks: Remarks) -> None:
    for row in POINTS:
        given = sets.points.get(row.name)
        if given is None or remarks.form not in row.forms:
            continue
        del sets.points[row.name]
        (target,) = row.becomes
        line = min((entry.line for entry in (*given.enabled, *given.disabled)), default=sets.line)
        remarks.changed(row, f"{sets.path}.{row.name}", line)
        if row.name == "postFilter":
            _join(sets.at(target), given)
        else:
            _merge_into(sets, row, given, remarks)


def _join(target: PluginSet, given: PluginSet) -> None:
    """Merge the set of a renamed point into the set of its new name. A plugin in both becomes one entry."""
    for entries, more in ((target.enabled, given.enabled), (target.disabled, given.disabled)):
        names = {entry.name for entry in entries}
        entries += [entry for entry in more if entry.name not in names]


def _merge_into(sets: PluginSets, row: Row, given: PluginSet, remarks: Remarks) -> None:
    """Merge the set of a point that is a part of another point in v1."""
    (target,) = row.becomes
    path = f"{sets.path}.{row.name}"
    for entry in given.enabled:
        if sets.at(target).enabled_entry(entry.name) is not None:
            continue
        if row.name == "unreserve":
            sets.at(target).enabled.append(entry)
            remarks.say(f"plugin {entry.name} is enabled at {target}", f"{path}.enabled", entry.line)
        else:
            remarks.say(
                f"plugin {entry.name} is dropped: it is not enabled at {target}",
                f"{path}.enabled",
                entry.line,
                change=Change.DROPPED,
            )
    for entry in given.disabled:
        remarks.say(
            f"{entry.name} is dropped: a plugin is disabled at {target} as a whole",
            f"{path}.disabled",
            entry.line,
            change=Change.DROPPED,
        )


def _convert_set(sets: PluginSets, point: str, plugin_set: PluginSet, remarks: Remarks) -> None:
    path = f"{sets.path}.{point}"
    enabled: list[Entry] = []
    for index, entry in enumerate(plugin_set.enabled):
        enabled += _convert_enabled(sets, point, entry, f"{path}.enabled[{index}]", remarks)
    plugin_set.disabled = [
        kept
        for index, entry in enumerate(plugin_set.disabled)
        for kept in _convert_disabled(sets, entry, f"{path}.disabled[{index}]", remarks)
    ]
    plugin_set.enabled = [
        _with_default_weight(sets, point, entry, f"{path}.enabled", remarks)
        for entry in _once(enabled, f"{path}.enabled", remarks)
    ]


def _with_default_weight(sets: PluginSets, point: str, entry: Entry, path: str, remarks: Remarks) -> Entry:
    """Return the entry. A plugin merged with a default plugin gets at least the default plugin's weight."""
    multi = sets.points.get(MULTI_POINT, PluginSet())
    is_off = sets.points[point].disables(entry.name) or multi.disables(entry.name)
    if entry.older is None or point not in ("score", MULTI_POINT) or is_off:
        return entry
    given = multi.enabled_entry(entry.name) if point == "score" else None
    weight = default_weight(entry.name, remarks.form) if given is None else given.weight or 1
    if weight and weight != (entry.weight or 1):
        both = f"{entry.older} and {entry.name}, on by default with weight {weight}, are one plugin"
        remarks.say(f"{both}: the highest weight counts", path, entry.line, change=Change.APPROXIMATED)
    return replace(entry, weight=max(weight, entry.weight or 1)) if weight else entry


def _convert_enabled(
    sets: PluginSets, point: str, entry: Entry, path: str, remarks: Remarks
) -> Iterator[Entry]:
    row = row_of(Subject.PLUGIN, entry.name)
    if row is None:
        yield entry
        return
    if remarks.form not in row.forms:
        raise _gone(row, entry, path, remarks)
    if row.strategy is not None:
        yield entry  # `_choose_strategy` decides when all strategies are known
        return
    if row.becomes == (AFFINITY,):
        sets.node_label_points.add(point)
    remarks.changed(row, path, entry.line)
    for name in row.becomes:
        yield replace(entry, name=name, older=entry.name)


def _gone(row: Row, entry: Entry, path: str, remarks: Remarks) -> ConfigurationError:
    instead = f"use {' and '.join(row.becomes)}" if row.becomes else "remove it"
    message = f'plugin "{entry.name}" is gone since {row.since}: {instead} ({row.note})'
    return remarks.refusal(message, path, SourceNode(None, entry.line))


def _convert_disabled(sets: PluginSets, entry: Entry, path: str, remarks: Remarks) -> Iterator[Entry]:
    row = row_of(Subject.PLUGIN, entry.name)
    if row is None:
        yield entry
    elif remarks.form not in row.forms:
        # The version of the file had no plugin with this name either.
        text = f"disabling {entry.name}, which does nothing, is dropped: {_why_not_disabled(row)}"
        remarks.say(text, path, entry.line)
    elif entry.name == sets.default_scorer:
        yield entry  # `_choose_strategy` decides when all strategies are known
    else:
        text = f"disabling {entry.name} is dropped: {_why_not_disabled(row)}"
        remarks.say(text, path, entry.line, change=Change.DROPPED)


def _why_not_disabled(row: Row) -> str:
    if not row.becomes:
        return f"the plugin is gone since {row.since}"
    if row.becomes == (SPREAD,):
        cure = "defaultingType: List in the arguments of PodTopologySpread turns that off"
        return f"the plugin is gone since {row.since}; {row.note}: {cure}"
    names = " and ".join(row.becomes)
    return f"the plugin is gone since {row.since}; disable {names} if you do not want that one"


def _once(entries: Iterable[Entry], path: str, remarks: Remarks) -> list[Entry]:
    """Return the entries, with one entry for plugins that are one plugin in v1: the highest weight counts.

    Other repetitions stay, as v1 refuses them.
    """
    kept: list[Entry] = []
    for entry in entries:
        index = next((i for i, one in enumerate(kept) if one.name == entry.name), None)
        if index is None or not (entry.older or kept[index].older):
            kept.append(entry)
            continue
        both = (kept[index], entry)
        kept[index] = max(both, key=lambda one: one.weight or 1)
        names = " and ".join(one.older or one.name for one in both)
        text = f"{names} are one plugin, {entry.name}: the highest weight counts"
        remarks.say(text, path, entry.line, change=Change.APPROXIMATED)
    return kept


def _choose_strategy(sets: PluginSets, remarks: Remarks) -> None:
    """Choose the strategy by which NodeResourcesFit scores. Before v1beta2, three plugins could score
    together.
    """
    path = f"{sets.path}.score"
    score = sets.points.get("score", PluginSet())
    is_default_off = score.disables(sets.default_scorer)
    given = {entry.name: entry for entry in score.enabled if strategy_of(entry.name) is not None}
    if not given:
        sets.strategy = None if is_default_off else strategy_of(sets.default_scorer)
        for index, entry in enumerate(score.disabled):
            if entry.name == sets.default_scorer:
                score.disabled[index] = replace(entry, name=FIT, older=entry.name)
                remarks.changed(plugin_row(entry.name), f"{path}.disabled[{index}]", entry.line)
        return
    chosen = max(given.values(), key=lambda entry: entry.weight or 1)
    sets.strategy = strategy_of(chosen.name)
    remarks.changed(plugin_row(chosen.name), f"{path}.enabled", chosen.line)
    for entry in given.values():
        if entry is not chosen:
            text = _one_strategy(entry.name, chosen.name)
            remarks.say(text, f"{path}.enabled", entry.line, change=Change.DROPPED)
    if not is_default_off and sets.default_scorer not in given:
        text = _one_strategy(f"{sets.default_scorer}, on by default,", chosen.name)
        remarks.say(text, path, chosen.line, change=Change.DROPPED)
    score.enabled = [
        replace(entry, name=FIT, older=entry.name) if entry is chosen else entry
        for entry in score.enabled
        if entry is chosen or entry.name not in given
    ]
    score.disabled = [entry for entry in score.disabled if entry.name != sets.default_scorer]


def _one_strategy(dropped: str, kept: str) -> str:
    return f"{dropped} is dropped: NodeResourcesFit has one scoringStrategy, which {kept} is"


def strategy_of(name: str) -> str | None:
    """Return the scoringStrategy that replaces a plugin of an older form; None if there is none."""
    row = row_of(Subject.PLUGIN, name)
    return None if row is None else row.strategy


def plugin_row(name: str) -> Row:
    """Return the row of a plugin that changed. Raises KeyError for other plugins."""
    row = row_of(Subject.PLUGIN, name)
    if row is None:
        raise KeyError(name)
    return row


def default_weight(name: str, form: Form) -> int:
    """Return the default weight of a plugin in a form; 0 for a plugin that does not score."""
    before = DEFAULT_WEIGHTS_BEFORE_V1BETA3 if form in _WEIGHTED_BEFORE_V1BETA3 else {}
    return before.get(name, DEFAULT_PLUGINS_BY_NAME[name].weight)


def keep_default_weights(sets: PluginSets, remarks: Remarks) -> None:
    """Add the older default weights explicitly, for plugins that score with their default weight."""
    score = sets.points.get("score", PluginSet())
    kept = [
        Entry(name, weight, sets.line)
        for name, weight in DEFAULT_WEIGHTS_BEFORE_V1BETA3.items()
        if not score.disables(name) and score.enabled_entry(name) is None
    ]
    if kept:
        sets.points = {MULTI_POINT: PluginSet(), **sets.points}
        sets.at(MULTI_POINT).enabled += kept
        names = ", ".join(entry.name for entry in kept)
        what = f"the default weight 1 of {names}"
        remarks.changed(field_row("default weights"), sets.path, sets.line, what=what)
