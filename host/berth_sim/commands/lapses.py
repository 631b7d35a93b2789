"""`lapses_of`: rules of the configuration that did not run, or not always, in a finished run.

The failure policy decides about a pod without the rule, so the pod may still be placed. A command reports
lapses, and fails with `--strict`. `simulation` and `bench` call it; `strictness` has the option and the exit
code.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from berth_host.app.host import Host
from berth_host.attach.state import ATTACHED, NOT_NEEDED, State
from berth_host.errors.plugins import PluginAbsentError
from berth_host.extenders.client import ExtenderName
from berth_host.metrics.plugin_stats import CallStats
from berth_host.rpc.call_rules import Policy

KEPT: Final = "no pod was placed without its answer"
"""The end of a lapse after which the configuration's rules still hold."""
_FALLS_BACK: Final = "SortKeys"
"""A call with a fallback: without the answer, pods have another order."""
_REPEATED: Final = "Unreserve"
"""Unreserve decides about no pod, and the host repeats it: its failure is no lapse."""


def is_kept(lapse: str) -> bool:
    """Return True for a lapse after which the configuration's rules still hold."""
    return lapse.endswith(KEPT)


def lets_none_pass(call: str, figures: CallStats) -> bool:
    """Return True if no failure let a pod pass: the policy was Fail, and the pod was tried again."""
    if call == _REPEATED:
        return True
    return call != _FALLS_BACK and set(+figures.policies) == {Policy.FAIL.value}


def lapses_of(host: Host) -> list[str]:
    """Return plugins that were absent, lack a point, or failed in calls; one sentence each."""
    return [*_absent(host), *_failed(host)]


def failed_plugins_of(host: Host) -> list[str]:
    """Return the required plugins that never answered or were quarantined, and why; one sentence each.

    A plugin that no pod concerned has no calls, and is not among them if it is attached.
    """
    optional = {plugin.name for plugin in host.configuration.berth.plugins if not plugin.required}
    found = {
        name: f"was put into quarantine: it {plugin.quarantine}"
        for name, plugin in host.attachments.attached_places.plugins.items()
        if plugin.quarantine
    }
    for condition in host.attachments.attached_places.conditions():
        for name, reason in condition.unusable.items():
            found.setdefault(name, reason)
        if condition.state not in (*ATTACHED, *NOT_NEEDED):
            for name in condition.plugins:
                if not _has_answered(host, name):
                    found.setdefault(name, f"never answered: {condition.reason or condition.state.value}")
    for name, stats in host.clients.stats.items():
        if stats.never_answered:
            found.setdefault(name, f"never answered: {stats.last_failure}")
    return [f"required plugin {name} {why}" for name, why in found.items() if name not in optional]


def _has_answered(host: Host, name: str) -> bool:
    """Return True if a call of the plugin had a usable answer, as of one that was lost later."""
    stats = host.clients.stats.get(name)
    return stats is not None and any(one.failed < one.calls for _, one in stats.items())


def remarks_of(host: Host) -> list[str]:
    """Return remarks of plugins that are no lapses, one sentence each. A plugin in the host's process that
    answers late is heard all the same: its rules ran.
    """
    return [
        *(
            f"plugin {', '.join(condition.plugins)} ({condition.place}): {warning}"
            for condition in host.attachments.attached_places.conditions()
            for warning in condition.warnings
        ),
        *(
            f"plugin {name} answered late in {figures.overruns} of {figures.calls} calls of {call}"
            for name, stats in host.plugin_stats().items()
            for call, figures in stats.items()
            if figures.overruns
        ),
    ]


def _absent(host: Host) -> Iterator[str]:
    for condition in host.attachments.attached_places.conditions():
        names = ", ".join(condition.plugins)
        if names and condition.state not in (State.ACTIVE, *NOT_NEEDED):
            reason = condition.reason or condition.state.value
            how = condition.state.value.lower() if condition.state in ATTACHED else "not attached"
            yield f"plugin {names} ({condition.place}) is {how}: {reason}"
        for name, reason in condition.unusable.items():
            yield f"plugin {name} ({condition.place}) {reason}"


def _failed(host: Host) -> Iterator[str]:
    for name, stats in host.plugin_stats().items():
        who = name if isinstance(name, ExtenderName) else f"plugin {name}"
        for call, figures in stats.items():
            of = f"of {figures.calls} calls of {call}"
            if figures.failed:
                kept = f"; {KEPT}" if lets_none_pass(call, figures) else ""
                yield f"{who} failed in {figures.failed} {of}{_how(figures)}{kept}"


def _how(figures: CallStats) -> str:
    absent = figures.failures[PluginAbsentError.outcome]
    if absent == figures.failed:
        return ": it was absent"
    said = ": -v and `berth why` show the errors"
    return f" (in {absent} it was absent){said}" if absent else said
