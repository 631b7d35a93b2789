"""Generate docs/reference/configuration.md and default-plugins.md from tables and types of
`berth_host.config`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from importlib.metadata import entry_points
from typing import Any, Final

from berth_host.config.berth import points as rules
from berth_host.config.berth.configuration import BerthConfiguration
from berth_host.config.decoding import types_v1
from berth_host.config.decoding.go_types import json_fields
from berth_host.config.default_plugins import DEFAULT_PLUGINS, EXTENSION_POINTS
from berth_host.config.emulation import DIFFERENCES, EMULATIONS, NO_EMULATION, VERSIONS
from berth_host.config.gate_tables import FEATURE_GATES
from berth_host.config.unread_gates import UNREAD_GATES
from berth_host.plugins.registry import GROUP
from berth_sdk.duration import format_duration
from berth_sdk.events import COMMON, POD_RESOURCES, EventInterest
from berth_sdk.wire.message_limit import DEFAULT_BYTES, MAX_BYTES, MIN_BYTES

from docs.reference.markdown import code, codes, table

_MS_NS: Final = 1_000_000


def points() -> str:
    """Return a table of the settings of each point of `plugins[].points`."""
    rows = []
    for name, rule in rules.POINT_RULES.items():
        policies = codes(policy.value for policy in rule.policies) or f"none: {rule.fixed}"
        default = code(rule.policy.value) if rule.policies else ""
        rows.append((code(name), _ms(rule.deadline_ms), _ms(rule.max_deadline_ms), default, policies))
    return table(("Point", "Deadline", "Highest deadline", "Policy", "Policies that may be set"), rows)


def limits() -> str:
    """Return a table of the limits of the other values."""
    rows = [
        (
            "`cycleBudget`",
            _ms(rules.DEFAULT_CYCLE_BUDGET_MS),
            f"{_ms(rules.MIN_CYCLE_BUDGET_MS)} to {_ms(rules.MAX_CYCLE_BUDGET_MS)}",
        ),
        (
            "`plugins[].points.*.deadline`",
            "see the table of points",
            f"{_ms(rules.MIN_DEADLINE_MS)} to the highest of the point",
        ),
        ("`plugins[].maxConcurrency`", "0: the plugin decides", f"0 to {rules.MAX_CONCURRENCY}"),
        (
            "`maxMessageBytes`, `plugins[].maxMessageBytes`",
            f"{DEFAULT_BYTES} (4 MiB)",
            f"{MIN_BYTES} (64 KiB) to {MAX_BYTES} (256 MiB)",
        ),
        ("`plugins`", "none", f"at most {rules.MAX_PLUGINS}"),
        ("`tracing.samplingRatePerMillion`", "see above", f"0 to {rules.MILLION}"),
    ]
    return table(("Field", "Default", "Range"), rows)


def feature_gates() -> str:
    """Return a table of every gate that affects scheduling."""
    rows = [
        (
            code(name),
            gate.stage.value,
            "on" if gate.default else "off",
            "yes" if gate.is_locked else "no",
            codes(gate.requires),
            UNREAD_GATES.get(name, ""),
        )
        for name, gate in FEATURE_GATES.items()
    ]
    return table(("Gate", "Stage", "Default", "Locked", "Needs", "Has no effect"), rows)


def differences() -> str:
    """Return a table of the behaviours of plugins that differ between versions."""
    rows = [
        (
            row.summary,
            codes(sorted(row.readers)) or "the host",
            *("yes" if row.is_in(version) else "no" for version in VERSIONS),
            "no" if row in NO_EMULATION.off else "yes",
            row.source,
        )
        for row in DIFFERENCES
    ]
    return table(("Behaviour", "Decided by", *VERSIONS, "without", "Source"), rows)


def emulated_events() -> str:
    """Return a table of the events that do not requeue a pod under emulation, by version and plugin."""
    classes = {entry_point.name: entry_point for entry_point in entry_points(group=GROUP)}
    rows = []
    for version, found in EMULATIONS.items():
        for plugin in sorted(found.events):
            added = _changes(classes[plugin].load().events) - _changes(found.events[plugin])
            if added:
                rows.append((code(version), code(plugin), codes(sorted(added))))
    return table(("Version", "Plugin", "Events that do not requeue a pod"), rows)


def _changes(events: Iterable[EventInterest]) -> set[str]:
    return {
        f"{'Pod' if one.resource in POD_RESOURCES else one.resource} {action}"
        for one in events
        for action in one.actions or COMMON
    }


def default_plugins() -> str:
    """Return a table of every default plugin: points, weight, and whether this build has it."""
    here = {entry_point.name for entry_point in entry_points(group=GROUP)}
    rows = [
        (
            code(plugin.name),
            "yes" if plugin.name in here else "**not yet**",
            codes(point for point in EXTENSION_POINTS if point in plugin.points),
            str(plugin.weight) if plugin.weight else "",
            code(plugin.args_kind or ""),
            code(plugin.feature_gate or ""),
        )
        for plugin in DEFAULT_PLUGINS
    ]
    return table(("Plugin", "In this build", "Points", "Weight", "Arguments", "Feature gate"), rows)


def berth_paths() -> list[str]:
    """Return the path of every field of BerthConfiguration; filter stands for all points."""
    found = []
    for path in _paths(BerthConfiguration, ""):
        if "Selector." not in path:
            found.append(path)
        if path == "plugins[].points":
            found += [f"{path}.filter", *_paths(rules.PointPolicy, f"{path}.filter.")]
    return found


def scheduler_paths() -> list[str]:
    """Return the path of every field of KubeSchedulerConfiguration above plugin sets and extenders."""
    deep = ("profiles[].plugins.", "extenders[].")
    return [path for path in _paths(types_v1.KubeSchedulerConfiguration, "") if not path.startswith(deep)]


def _paths(cls: type, prefix: str) -> Iterator[str]:
    by_attribute = {known.attribute: name for name, known in json_fields(cls).items()}
    hints = {item.name: item for item in fields(cls)}
    for attribute, name in by_attribute.items():
        inner, is_list = _inner(str(hints[attribute].type), cls)
        path = f"{prefix}{name}{'[]' if is_list and inner is not None else ''}"
        yield path
        if inner is not None:
            yield from _paths(inner, f"{path}.")


def _inner(annotation: str, cls: type) -> tuple[Any, bool]:
    """Return the dataclass that an annotation names, and True if it is a list of them."""
    is_list = annotation.startswith("tuple[")
    word = annotation.removeprefix("tuple[").split(",")[0].split(" |")[0].strip(" []")
    module = __import__(cls.__module__, fromlist=["*"])
    inner = getattr(module, word, None)
    return (inner if is_dataclass(inner) else None), is_list


def _ms(milliseconds: int) -> str:
    return format_duration(milliseconds * _MS_NS)
