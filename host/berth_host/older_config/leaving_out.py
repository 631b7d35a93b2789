"""Plugins that berth lacks are taken out of a v1 document, with a remark about each.

Enabled and disabled entries and arguments go; everything else of the document stays as it is. Where a profile
needs a plugin at a point (QueueSort, Bind) and has none left, the default plugin of the point comes back.
`berth migrate` calls it before the document is decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME, MULTI_POINT
from berth_host.config.errors import nearest
from berth_host.config.source.node import Member, SourceNode
from berth_host.older_config.nodes import field_of, list_of, node_of, text_of, with_fields, with_members
from berth_host.older_config.other_plugins import UNKNOWN, other_plugin
from berth_host.older_config.plugin_sets import ALL
from berth_host.older_config.table import Change, Subject, row_of
from berth_host.older_config.warnings import Remark

_NEEDED: Final[Mapping[str, str]] = {"queueSort": "PrioritySort", "bind": "DefaultBinder"}
"""The points that every profile needs a plugin at, and the default plugin of each."""
_LISTS: Final = ("enabled", "disabled")


def leave_out(
    root: SourceNode, points_by_plugin: Mapping[str, frozenset[str]]
) -> tuple[SourceNode, tuple[Remark, ...]]:
    """Return the document without the plugins that are not in `points_by_plugin`, and the remarks.

    `points_by_plugin`: all plugins that berth has here, with the points they implement. A name that a
    profile does not enable has no effect, so it stays; only arguments of plugins that a table has go as well.
    """
    profiles = field_of(root, "profiles")
    if profiles is None:
        return root, ()
    worked = [
        _Profile(one, f"profiles[{index}]", points_by_plugin) for index, one in enumerate(profiles.items)
    ]
    if not any(one.leaving for one in worked):
        return root, ()
    kept = list_of((one.kept() for one in worked), profiles.line)
    member = Member(root.members["profiles"].key_line, kept)
    remarks = tuple(remark for one in worked for remark in one.remarks())
    return with_members(root, {**root.members, "profiles": member}), remarks


@dataclass(slots=True)
class _Profile:
    """One profile and the names that leave it. `stand_ins`: by point, the default plugin that comes back."""

    node: SourceNode
    path: str
    known: Mapping[str, frozenset[str]]
    leaving: set[str] = field(init=False)
    stand_ins: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        enabled = {text_of(entry, "name") for _, _, entry in self._entries("enabled")}
        configured = {name for entry in self._args() if _is_in_a_table(name := text_of(entry, "name"))}
        self.leaving = (enabled | configured) - {"", ALL, *self.known}

    def kept(self) -> SourceNode:
        """Return the profile without the names that leave it."""
        members = dict(self.node.members)
        plugins, args = field_of(self.node, "plugins"), field_of(self.node, "pluginConfig")
        if plugins is not None:
            sets = self._with_stand_ins(self._kept_sets(plugins))
            _put(members, "plugins", with_members(plugins, sets), is_empty=not sets and bool(plugins.members))
        if args is not None:
            left = self._staying(args)
            _put(members, "pluginConfig", left, is_empty=not left.items and bool(args.items))
        return with_members(self.node, members)

    def remarks(self) -> Iterator[Remark]:
        """Yield a remark for each name that leaves, and notes about what the rest of the profile does then.

        Call it after `kept`.
        """
        for name in sorted(self.leaving, key=lambda name: (self._places(name)[0][0], name)):
            places = self._places(name)
            text, change = _farewell(name, [place for _, place in places], self.known)
            yield Remark(text, self.path, places[0][0], change, plugin=name)
        for point, default in self.stand_ins.items():
            text = f"{default} takes over at {point}, where every profile needs a plugin"
            yield Remark(text, f"{self.path}.plugins.{point}", self.node.line_of(f"plugins.{point}"))
        off = [
            shown
            for point, _, entry in self._entries("disabled")
            if point not in self.stand_ins and (shown := _shown_disabled(point, text_of(entry, "name")))
        ]
        if off and any(self._is_enabled(name) for name in self.leaving):
            text = (
                f"the profile still disables {', '.join(off)}: enable again what it disabled in favour of a "
                "plugin that is left out"
            )
            yield Remark(text, f"{self.path}.plugins", self.node.line_of("plugins"))

    def _entries(self, *lists: str) -> Iterator[tuple[str, str, SourceNode]]:
        """Yield the point, the list and the node of each entry of the plugin sets."""
        plugins = field_of(self.node, "plugins")
        for point, member in (plugins.members if plugins is not None else {}).items():
            for listed in lists:
                entries = field_of(member.node, listed)
                for entry in entries.items if entries is not None else ():
                    yield point, listed, entry

    def _args(self) -> tuple[SourceNode, ...]:
        args = field_of(self.node, "pluginConfig")
        return () if args is None else args.items

    def _places(self, name: str) -> list[tuple[int, str]]:
        """Return the line and the description of each place of a name, in the order of the file."""
        places = [
            (entry.line, point if listed == "enabled" else f"{point} (disabled)")
            for point, listed, entry in self._entries(*_LISTS)
            if text_of(entry, "name") == name
        ]
        places += [(entry.line, "pluginConfig") for entry in self._args() if text_of(entry, "name") == name]
        return places

    def _is_enabled(self, name: str, *points: str) -> bool:
        return any(
            text_of(entry, "name") == name and (not points or point in points)
            for point, _, entry in self._entries("enabled")
        )

    def _staying(self, entries: SourceNode) -> SourceNode:
        return list_of(
            (one for one in entries.items if text_of(one, "name") not in self.leaving), entries.line
        )

    def _kept_sets(self, plugins: SourceNode) -> dict[str, Member]:
        """Return the plugin sets without the names that leave. Sets and lists that become empty go, too."""
        sets: dict[str, Member] = {}
        for point, member in plugins.members.items():
            lists = dict(member.node.members)
            for name in _LISTS:
                given = field_of(member.node, name)
                if given is not None and given.items:
                    left = self._staying(given)
                    _put(lists, name, left, is_empty=not left.items)
            if lists or not member.node.members:
                is_same = len(lists) == len(member.node.members) and all(
                    lists[name].node is one.node for name, one in member.node.members.items()
                )
                sets[point] = member if is_same else Member(member.key_line, with_members(member.node, lists))
        return sets

    def _with_stand_ins(self, sets: dict[str, Member]) -> dict[str, Member]:
        """Return the sets with a default plugin at each needed point whose only plugin leaves."""
        for point, default in _NEEDED.items():
            if not any(self._serves(name, point) for name in self.leaving) or _has_any(
                sets, point, self.known
            ):
                continue
            self.stand_ins[point] = default
            member = sets.pop(point, None)
            if not _has_any(sets, point, self.known):
                line = self.node.line if member is None else member.key_line
                entry = node_of({"enabled": [{"name": default}]}, line)
                node = entry if member is None else with_fields(member.node, **_nodes_of(entry))
                sets[point] = Member(line, node)
        return sets

    def _serves(self, name: str, point: str) -> bool:
        """Return True if a plugin that leaves may have been the plugin of the point."""
        row = other_plugin(name)
        may_expand = row is None or point in row.points
        return self._is_enabled(name, point) or (may_expand and self._is_enabled(name, MULTI_POINT))


def _shown_disabled(point: str, name: str) -> str:
    """Return how a note names a disabled default plugin; empty if nothing is disabled by the name."""
    default = DEFAULT_PLUGINS_BY_NAME.get(name)
    shown = "all default plugins" if name == ALL else name
    if point == MULTI_POINT and (name == ALL or default is not None):
        return shown
    is_at_point = name == ALL or (default is not None and point in default.points)
    return f"{shown} at {point}" if is_at_point else ""


def _nodes_of(node: SourceNode) -> dict[str, SourceNode]:
    return {name: member.node for name, member in node.members.items()}


def _put(members: dict[str, Member], name: str, node: SourceNode, *, is_empty: bool) -> None:
    """Replace the value of a field, or remove the field."""
    if is_empty:
        del members[name]
    else:
        members[name] = Member(members[name].key_line, node)


def _has_any(sets: Mapping[str, Member], point: str, known: Mapping[str, frozenset[str]]) -> bool:
    """Return True if a profile with these sets has a plugin at the point."""
    if _names(sets, point, "enabled"):
        return True
    off = _names(sets, point, "disabled")
    if ALL in off:
        return False
    off_everywhere = _names(sets, MULTI_POINT, "disabled")
    expanded = {*_names(sets, MULTI_POINT, "enabled")}
    if ALL not in off_everywhere:
        expanded |= DEFAULT_PLUGINS_BY_NAME.keys() - off_everywhere
    return any(point in known.get(name, frozenset()) for name in expanded - off)


def _names(sets: Mapping[str, Member], point: str, listed: str) -> set[str]:
    member = sets.get(point)
    entries = None if member is None else field_of(member.node, listed)
    return {text_of(entry, "name") for entry in (entries.items if entries is not None else ())}


def _is_in_a_table(name: str) -> bool:
    return other_plugin(name) is not None or row_of(Subject.PLUGIN, name) is not None


def _farewell(name: str, places: Iterable[str], known: Iterable[str]) -> tuple[str, Change]:
    """Return the text about a plugin that leaves, and how near the replacement is."""
    named = ", ".join(dict.fromkeys(places))
    older, other = row_of(Subject.PLUGIN, name), other_plugin(name)
    if older is not None:
        text = f"{name} is left out ({named}): gone since {older.since}"
        instead = f"use {' and '.join(older.becomes)} ({older.note})" if older.becomes else older.note
        return f"{text}; {instead}", older.change if older.becomes else Change.DROPPED
    text = f"{name} is left out ({named}): berth has no such plugin"
    if other is not None:
        return f"{text}; it {other.decides}; instead: {other.instead}", other.change
    meant = nearest(name, known)
    question = f' (did you mean "{meant}"?)' if meant is not None else ""
    return f"{text}{question}; {UNKNOWN}", Change.DROPPED
