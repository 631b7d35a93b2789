"""Cases about the plugin's arguments: trials, arguments that it refuses, and a profile with other ones.

The kit makes other arguments of those that it was given: other numbers, words and lists. It knows no more
about them than what the plugin answers with each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import grpc

from berth_sdk.conformance.answers import Answers, answers, around, difference
from berth_sdk.conformance.attaching import REFUSED, offers_trial
from berth_sdk.conformance.case import BrokenError, case, declares
from berth_sdk.conformance.holding import MOST, Holding, forgotten, granted, still_no, taken_up
from berth_sdk.conformance.host import (
    PROFILE,
    CallError,
    Host,
    RefusedArgumentsError,
    new_id,
    skipped,
)
from berth_sdk.conformance.reserving import live, reserves
from berth_sdk.conformance.same import simulated
from berth_sdk.conformance.scheduling import simulates
from berth_sdk.plugin.v1 import identity_pb2 as identity

OTHER: Final = "kit-other-profile"
_REFUSALS: Final = ("error", grpc.StatusCode.INVALID_ARGUMENT)
"""How a plugin refuses arguments. Of another gRPC code the contract does not say what it leaves."""
_MOST: Final = 12
"""The most other arguments that a case tries."""
_shows = declares("PRE_FILTER", "FILTER", "PRE_SCORE", "SCORE", "RESERVE")


def _others(value: Any) -> Iterator[Any]:
    """Yield values like one of the arguments."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (value + 1, value + 2, *((value - 1,) if value > 1 else ()))
    elif isinstance(value, str):
        yield f"{value}-kit"
    elif isinstance(value, list):
        if all(isinstance(one, str) for one in value):
            yield [*value, "kit-node-0", "kit-node-1", "zone-0"]
        yield value[1:]
    elif isinstance(value, dict):
        for key, inner in value.items():
            for other in _others(inner):
                yield {**value, key: other}


def others_of(args: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return other arguments that the plugin may accept; first those in which every argument is another."""
    firsts = {key: next(_others(value), value) for key, value in (args or {}).items()}
    made = [firsts] if len(firsts) > 1 else []
    made += [{**(args or {}), key: other} for key, value in (args or {}).items() for other in _others(value)]
    return made[:_MOST]


def wrong_of(args: dict[str, Any] | None) -> list[dict[str, Any] | None]:
    """Return arguments that the plugin is likely to refuse."""
    made: list[dict[str, Any] | None] = []
    for key, value in (args or {}).items():
        wrong: list[Any] = [{"kit": ["wrong"]}, "kit-wrong", -1, [[1]]]
        if isinstance(value, int | float):
            wrong.append(0.5)
        made += [{**(args or {}), key: one} for one in wrong]
    if args:
        made.append(None)
    return [*made, {"kitUnknownArgument": {"wrong": True}}]


def shown(host: Host, profile: str = PROFILE) -> Answers:
    """Return what shows the arguments of a profile: answers up to Score, and how many pods are granted."""
    pods = around(host, host.world.nodes[1], host.world.nodes[3])
    found = answers(host, pods, profile=profile)
    if simulates(host.subject):
        found |= simulated(host, pods[0], profile)
    found["pods that are granted"] = str(granted(host, profile))
    return found


@case(
    "configure.trial-changes-nothing",
    "core",
    "A trial of other arguments, accepted or not, changes no answer, no state and no reservation.",
    lambda subject: offers_trial(subject) and _shows(subject),
)
def _trial(host: Host) -> None:
    mine = host.target.args
    before = shown(host)
    stranger = new_id()
    host.handshake(stranger)
    _try(host, stranger, mine)
    host.probe()
    host.refused("Probe", identity.ProbeRequest(attachment_id=stranger), REFUSED)
    others = [*others_of(mine), *wrong_of(mine)[:4]]
    for args in others:
        _try(host, host.attachment_id, args)
        if found := difference(before, shown(host)):
            raise BrokenError(f"a trial of the arguments {json.dumps(args)} changes an answer: {found}")
    _keeps_its_copy(host)
    if not granted(host):
        return
    holding = Holding(host)
    count = holding.fill()
    for args in (mine, *others):
        _try(host, host.attachment_id, args)
    if count < MOST:
        still_no(holding, "after a trial of arguments")
    answer = host.reconcile(*(live(cycle) for cycle in holding.held))
    if answer is not None and answer.unknown_cycle_ids:
        raise BrokenError("a trial of arguments ends a reservation")
    holding.give_back(*holding.held)


def _try(host: Host, attachment_id: str, args: dict[str, Any] | None) -> None:
    """Ask whether the plugin accepts arguments. The answer does not matter."""
    _code_of(host, _with(host, attachment_id, args, trial=True))


@case(
    "configure.error",
    "core",
    "A Configure that the plugin answers with an error leaves the attachment before it, and its arguments.",
)
def _error(host: Host) -> None:
    old = host.attachment_id
    before = shown(host) if _shows(host.subject) else {}
    refusals = 0
    for args in wrong_of(host.target.args):
        for attachment_id in (new_id(), host.attachment_id):
            if attachment_id != host.attachment_id:
                host.handshake(attachment_id)
            request = _with(host, attachment_id, args)
            if _code_of(host, request) not in _REFUSALS:
                host.attach()
                old = host.attachment_id
                break
            refusals += 1
            _goes_on(host, old, attachment_id)
        if refusals >= 6:
            break
    if not refusals:
        raise skipped("the plugin refuses none of the arguments that the kit tries")
    if before and (found := difference(before, shown(host))):
        raise BrokenError(f"a Configure that ended in an error changes an answer: {found}")


def _code_of(host: Host, request: identity.ConfigureRequest) -> grpc.StatusCode | str:
    """Make a Configure; return its gRPC code, or "error" for an answer with an error."""
    try:
        answer = host.call("Configure", request, 10.0)
    except CallError as err:
        if err.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            raise
        return err.code
    return "error" if answer.error else grpc.StatusCode.OK


def _with(
    host: Host, attachment_id: str, args: dict[str, Any] | None, **fields: Any
) -> identity.ConfigureRequest:
    """Return a Configure with other arguments."""
    kept, host.args = host.args, {PROFILE: args}
    try:
        return host.configuration(attachment_id, **fields)
    finally:
        host.args = kept


def _goes_on(host: Host, old: str, refused: str) -> None:
    try:
        host.probe(old)
    except CallError as err:
        raise BrokenError(
            f"after a Configure that ended in an error, with the attachment before it {err}"
        ) from None
    if refused != old:
        host.refused("Probe", identity.ProbeRequest(attachment_id=refused), REFUSED)
    _keeps_its_copy(host)


def _keeps_its_copy(host: Host) -> None:
    """Send two deltas, which are on the version that the plugin's copy has."""
    if host.subject.keeps_state:
        pod = host.world.nodes[9].pods
        host.sync([host.world.change(9)])
        host.sync([host.world.leave(9, list(pod)[-1])])


@case(
    "configure.profiles",
    "core",
    "In two profiles with other arguments, each call is answered by those of its profile.",
    _shows,
)
def _profiles(host: Host) -> None:
    mine = host.target.args
    if mine is None:
        raise skipped("the kit makes other arguments of those that it is given with --args")
    alone = shown(host)
    other, others_alone = _another(host, alone)
    if other is None:
        raise skipped(
            "the plugin answers alike with all other arguments that the kit makes of those of --args"
        )
    orders: list[dict[str, dict[str, Any] | None]] = [
        {PROFILE: mine, OTHER: other},
        {OTHER: other, PROFILE: mine},
    ]
    for args in orders:
        host.args = args
        try:
            host.attach()
        except RefusedArgumentsError as err:
            raise skipped(f"the plugin accepts one profile alone, which is allowed: {err}") from None
        for profile, wanted in ((PROFILE, alone), (OTHER, others_alone), (PROFILE, alone)):
            if found := difference(wanted, shown(host, profile)):
                raise BrokenError(
                    f"with two profiles, a call of the profile {profile} is not answered by its arguments"
                    f" {json.dumps(args[profile])}: {found}"
                )


@case(
    "configure.replaces",
    "core",
    "A second Configure of an attachment, with other arguments, replaces the first.",
    _shows,
)
def _replaces(host: Host) -> None:
    mine = host.target.args
    if mine is None:
        raise skipped("the kit makes other arguments of those that it is given with --args")
    alone = shown(host)
    other, others_alone = _another(host, alone)
    if other is None:
        raise skipped(
            "the plugin answers alike with all other arguments that the kit makes of those of --args"
        )
    for args, wanted in ((mine, alone), (other, others_alone)):
        host.args = {PROFILE: args}
        host.configure(host.attachment_id)
        if found := difference(wanted, shown(host)):
            raise BrokenError(
                f"after a second Configure with the arguments {json.dumps(args)} the plugin does not answer"
                f" by them: {found}"
            )


@case(
    "reconcile.profiles",
    "binding",
    "What Reconcile lists of a profile counts for the limit of that profile, and for no other.",
    reserves,
)
def _reconciled(host: Host) -> None:
    mine = host.target.args
    alone = granted(host)
    if mine is None or not alone:
        raise skipped("the kit makes other arguments of those that it is given with --args")
    other, count = _with_another_limit(host, alone)
    if other is None:
        raise skipped("the plugin grants as many pods with all other arguments that the kit makes")
    host.args = {PROFILE: mine, OTHER: other}
    try:
        host.attach()
    except RefusedArgumentsError as err:
        raise skipped(f"the plugin accepts one profile alone, which is allowed: {err}") from None
    if host.reconcile() is None:
        raise skipped("the plugin does not offer Reconcile, which is allowed")
    for profile, wanted, beside in ((OTHER, count, PROFILE), (PROFILE, alone, OTHER)):
        holding = Holding(host, profile=profile)
        if holding.fill(wanted + 1) != wanted:
            raise skipped("the plugin's profiles share what they grant")
        before = granted(host, beside)
        again = forgotten(holding)
        taken_up(again, wanted, f"that lists reservations of the profile {profile}")
        if len(again.held) == wanted and (after := granted(host, beside)) != before:
            raise BrokenError(
                f"with {wanted} reservations of the profile {profile}, the plugin grants {before} pods of"
                f" {beside}; once a Reconcile has listed them, it grants {after}"
            )
        host.reconcile()
        host.attach()


def _attached_with_others(host: Host) -> Iterator[dict[str, Any]]:
    """Attach with each of the other arguments that the plugin accepts, and yield them."""
    for args in others_of(host.target.args):
        host.args = {PROFILE: args}
        attachment_id = new_id()
        host.handshake(attachment_id)
        if _code_of(host, host.configuration(attachment_id)) is not grpc.StatusCode.OK:
            continue
        host.attach()
        yield args


def _with_another_limit(host: Host, alone: int) -> tuple[dict[str, Any] | None, int]:
    """Return other arguments with which the plugin grants another number of pods, and that number."""
    for args in _attached_with_others(host):
        count = granted(host)
        if count not in (0, alone, MOST):
            return args, count
    return None, 0


def _another(host: Host, alone: Answers) -> tuple[dict[str, Any] | None, Answers]:
    """Return other arguments with which the plugin answers otherwise, and these answers."""
    for args in _attached_with_others(host):
        found = shown(host)
        if difference(alone, found):
            return args, found
    host.args = {PROFILE: host.target.args}
    return None, {}
