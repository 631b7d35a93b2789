"""The runner: attaches to a server, runs the cases that a plugin's points choose, and reports each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import grpc
from google.protobuf.message import DecodeError

from berth_sdk.clocks import monotonic_s
from berth_sdk.conformance import (  # noqa: F401  (their import registers the cases)
    arguments,
    attaching,
    binding,
    groups,
    holding,
    naming,
    queueing,
    restarts,
    same,
    scheduling,
    stateful,
    together,
    versions,
)
from berth_sdk.conformance.case import CASES, LEVELS, BrokenError, Case, SkippedError, Subject, spelled
from berth_sdk.conformance.host import RETURN_S, CallError, Host, RefusedArgumentsError, Target, new_id
from berth_sdk.plugin.v1 import identity_pb2 as identity

LIMIT_S: Final = 60.0
"""The time for one case."""
_CONFIGURE_S: Final = 15.0
"""The time to learn what a plugin declares with its arguments."""
_GONE: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
"""The codes of a server that may have ended, or hang, since an earlier call."""
_DETAIL: Final = 2000
"""The characters of a detail that are shown."""


class UnreachableError(Exception):
    """The error of a server with which no case can run. Its text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one case. `result`: "pass", "fail" or "skip". `detail`: why it failed or was skipped.

    `needs`: the option with which the kit can judge a skipped case; empty: there is none.
    """

    case: Case
    result: str
    detail: str
    seconds: float
    needs: str = ""


@dataclass
class Report:
    """All results about one plugin. `points`: as BerthConfiguration spells them."""

    endpoint: str
    plugin: str
    points: list[str]
    results: list[Result] = field(default_factory=list)

    def count(self, result: str) -> int:
        """Return how many cases came to `result`."""
        return sum(1 for one in self.results if one.result == result)

    @property
    def conforms(self) -> bool:
        """True if cases passed and none failed."""
        return self.count("fail") == 0 and self.count("pass") > 0

    @property
    def unasked(self) -> dict[str, int]:
        """How many cases were skipped for lack of each option."""
        return dict(Counter(one.needs for one in self.results if one.needs))


def hello_of(target: Target) -> identity.HandshakeResponse:
    """Return the server's answer to a first Handshake. Raises UnreachableError."""
    nobody = Subject(identity.PluginDescriptor(), identity.HandshakeResponse())
    host = Host(target, nobody, 15.0)
    try:
        return host.handshake()
    except CallError as err:
        raise UnreachableError(target.without_secrets(_unreachable(target.address, err))) from err
    finally:
        host.close()


def _unreachable(address: str, err: CallError) -> str:
    if err.code is grpc.StatusCode.UNIMPLEMENTED:
        return f"{address}: no plugin of berth: the server lacks berth.plugin.v1.IdentityService"
    if err.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"{address}: no answer to Handshake: is it a gRPC server, and does it hang? ({err})"
    if err.code is grpc.StatusCode.UNAUTHENTICATED:
        return f"{address}: {err}; give the secret that the plugin expects with --credential-file"
    if err.code is grpc.StatusCode.UNAVAILABLE:
        return (
            f"{address}: no gRPC server can be reached there: start the plugin's server, or name the address"
            f" at which it listens ({err.details})"
        )
    return f"{address}: {err}"


def subjects(hello: identity.HandshakeResponse) -> list[Subject]:
    """Return the plugins of a server; one without a name if there is none, so that the fault is named."""
    plugins = list(hello.plugins) or [identity.PluginDescriptor()]
    return [Subject(plugin, hello) for plugin in plugins]


def configured(target: Target, subject: Subject) -> Subject:
    """Return the plugin with what it declares with its arguments, in place of what the handshake says.

    A plugin that does not accept its arguments, or does not answer, stays as it is: the cases name the fault.
    """
    host = Host(target, subject, _CONFIGURE_S)
    try:
        attachment_id = new_id()
        host.handshake(attachment_id)
        answer = host.configure(attachment_id)
    except (BrokenError, DecodeError) as err:
        refused = isinstance(err, RefusedArgumentsError)
        return replace(subject, trouble=_shortened(str(err)), refused=refused)
    finally:
        host.close()
    found = [plugin for plugin in answer.plugins if plugin.name == subject.plugin.name]
    return replace(subject, plugin=found[0]) if found else subject


def chosen(subject: Subject, level: str) -> list[Case]:
    """Return the cases for a plugin, up to a level, level by level."""
    levels = LEVELS[: LEVELS.index(level) + 1]
    found = [one for one in CASES if one.level in levels and one.when(subject)]
    return sorted(found, key=lambda one: LEVELS.index(one.level))


def refused(target: Target, subject: Subject) -> Report:
    """Return the report about a plugin that refuses its arguments: one case, as no other can be judged."""
    (one,) = (found for found in CASES if found.id == "configure.accepted")
    points = [spelled(point) for point in subject.plugin.points]
    detail = target.without_secrets(f"{subject.trouble}: give the plugin's arguments with --args")
    return Report(target.address, subject.plugin.name, points, [Result(one, "fail", detail, 0.0)])


def run(
    target: Target,
    subject: Subject,
    cases: Sequence[Case],
    told: Callable[[Result], None] = lambda _result: None,
    limit_s: float = LIMIT_S,
) -> Report:
    """Run cases with a plugin, and return the report. `told`: is called with each result as it comes."""
    points = [spelled(point) for point in subject.plugin.points]
    report = Report(target.address, subject.plugin.name, points)
    for result in _results(target, subject, cases, limit_s):
        report.results.append(result)
        told(result)
    return report


def _results(target: Target, subject: Subject, cases: Sequence[Case], limit_s: float) -> Iterator[Result]:
    stopped = ""
    for one in cases:
        if stopped:
            yield Result(one, "skip", stopped, 0.0)
            continue
        begun = monotonic_s()
        result, detail, needs = _judged(target, subject, one, limit_s)
        yield Result(one, result, target.without_secrets(detail), monotonic_s() - begun, needs)
        if result == "fail":
            stopped = _why_no_more(target, subject, one)


def _judged(target: Target, subject: Subject, one: Case, limit_s: float) -> tuple[str, str, str]:
    host = Host(target, subject, limit_s)
    try:
        if one.attaches:
            try:
                host.attach()
            except BrokenError as err:
                raise BrokenError(f"the case needs an attachment: {err}") from err
        one.run(host)
    except SkippedError as err:
        return "skip", _shortened(str(err)), err.needs
    except BrokenError as err:
        text = _shortened(str(err))
        if subject.trouble and isinstance(err, CallError) and err.code in _GONE:
            text += f"; before the first case: {subject.trouble}"
        return "fail", _in_time(host, text), ""
    except DecodeError as err:
        return "fail", f"an answer cannot be read: {err}", ""
    except OSError as err:
        return "fail", f"the connection to the instance broke: {err}", ""
    finally:
        host.close()
    return "pass", "", ""


def _shortened(text: str) -> str:
    """Return a detail without its end if it is long: it may quote an answer as large as a message."""
    return text if len(text) <= _DETAIL else f"{text[:_DETAIL]}... ({len(text)} characters)"


def _in_time(host: Host, text: str) -> str:
    if monotonic_s() < host.ends_at:
        return text
    return (
        f"{text} (the {host.limit_s:g} s of the case are over; if the machine is slow, give the kit more"
        " time with --time-factor)"
    )


def _why_no_more(target: Target, subject: Subject, failed: Case) -> str:
    """Return why no further case can run after a failed one; empty: more can run."""
    if failed.id == "configure.accepted":
        return "the plugin does not accept its arguments: give them with --args"
    if failed.id == "handshake.answer" and not subject.plugin.name:
        return "the server serves no plugin of this contract"
    until = monotonic_s() + RETURN_S * target.time_factor
    while True:
        try:
            hello = hello_of(target)
        except UnreachableError as err:
            if monotonic_s() > until:
                return f"the server does not answer any more since the case {failed.id}: {err}"
            time.sleep(0.2)
        else:
            if not any(version.major == 1 for version in hello.supported):
                return "the server does not speak major 1 of the contract"
            return ""
