"""Cases about a process that serves several plugins: each keeps to itself."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

from berth_sdk.conformance.case import BrokenError, Subject, case
from berth_sdk.conformance.host import Cycle, Host, new_id, skipped
from berth_sdk.conformance.reserving import live, reserves, takes, unreserve
from berth_sdk.conformance.scheduling import bare, judges, pure_call
from berth_sdk.conformance.way import Way
from berth_sdk.conformance.world import World
from berth_sdk.plugin.v1 import identity_pb2 as identity


def others(subject: Subject) -> list[Subject]:
    """Return the other plugins of the process."""
    plugins = subject.hello.plugins
    return [Subject(one, subject.hello) for one in plugins if one.name != subject.plugin.name]


def judges_beside(subject: Subject) -> bool:
    """Return True if the plugin has a pure call, and is not alone in its process."""
    return judges(subject) and bool(others(subject))


def reserves_beside(subject: Subject) -> bool:
    """Return True if the plugin reserves, and another one of its process reserves or waits."""
    return reserves(subject) and any(takes(other) for other in others(subject))


@case(
    "plugins.calls",
    "core",
    "A call is about the plugin that it names, also in a cycle that all plugins of the process share.",
    judges_beside,
)
def _calls(host: Host) -> None:
    rpc, cycle = pure_call(host)
    alone = _asked(host, cycle, rpc)
    _attach_all(host)
    shared = host.cycle(cycle.pod_name)
    answers = [_asked(host, shared, rpc)]
    for other in others(host.subject):
        if judges(other):
            beside = _as(host, other)
            name, _ = pure_call(beside)
            _asked(beside, Cycle(beside, shared.id, shared.pod_name), name)
    answers.append(_asked(host, shared, rpc))
    for answer in answers:
        if bare(answer) != bare(alone):
            raise BrokenError(
                f"{rpc} of {host.subject.plugin.name} gets another answer when the host asks"
                " the other plugins of the process in the same cycle"
            )


@case(
    "plugins.reservations",
    "binding",
    "Unreserve and Reconcile of one plugin leave the reservations of the others.",
    reserves_beside,
)
def _reservations(host: Host) -> None:
    _attach_all(host)
    way = Way(host)
    way.reserve()
    listed = live(way.cycle)
    for other in others(host.subject):
        if not takes(other):
            continue
        beside = _as(host, other)
        if beside.reconcile() is None:
            continue
        if other.has("RESERVE"):
            same = Cycle(beside, way.cycle.id, way.cycle.pod_name, reserved_on=way.cycle.reserved_on)
            unreserve(beside, same)
        answer = host.reconcile(listed)
        if answer is not None and way.cycle.id in answer.unknown_cycle_ids:
            raise BrokenError(
                f"Unreserve or Reconcile of {other.plugin.name} ends a reservation of"
                f" {host.subject.plugin.name}: both are about the plugin that they name"
            )
    unreserve(host, way.cycle)


def _attach_all(host: Host) -> None:
    """Begin an attachment with all plugins of the process, and with the state that one of them needs."""
    beside = others(host.subject)
    host.others = [other.plugin for other in beside]
    host.world = World(_together([host.subject, *beside]), host.target.pod)
    attachment_id = new_id()
    host.handshake(attachment_id)
    try:
        host.configure(attachment_id)
    except BrokenError as err:
        raise skipped(f"the plugins of the process cannot be attached together: {err}") from err
    if host.world.subject.keeps_state:
        host.sync([host.world.full()])
    for subject in (host.subject, *beside):
        if takes(subject):
            _as(host, subject).reconcile()


def _together(subjects: list[Subject]) -> Subject:
    """Return a plugin that needs what any of these needs."""
    whole = identity.PluginDescriptor(node_mode=identity.NODE_MODE_NAMES)
    for subject in subjects:
        whole.needs.extend(subject.plugin.needs)
        if subject.is_snapshot:
            whole.node_mode = identity.NODE_MODE_SNAPSHOT
    return replace(subjects[0], plugin=whole)


def _as(host: Host, subject: Subject) -> Host:
    """Return the same attachment, for calls about another plugin."""
    found = copy(host)
    found.subject = subject
    return found


def _asked(host: Host, cycle: Cycle, rpc: str) -> Any:
    return cycle.ask(rpc, cycle.context(complete=True), candidates=host.candidates())
