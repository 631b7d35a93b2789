"""Cases of the level core about the attachment: Handshake, Configure, Probe, Drain."""

from __future__ import annotations

import re
import time
from collections.abc import Sized
from typing import Any

import grpc

from berth_sdk.clocks import monotonic_s
from berth_sdk.conformance.case import BrokenError, Subject, case, declares, number_of, spelled
from berth_sdk.conformance.host import CallError, Host, new_id, skipped
from berth_sdk.conformance.way import Way, chosen
from berth_sdk.conformance.world import stream
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.plugin.v1 import scheduling_pb2 as scheduling
from berth_sdk.wire.call_names import metadata_of
from berth_sdk.wire.message_limit import MIN_BYTES

REFUSED = grpc.StatusCode.PERMISSION_DENIED
_DECLARED_AT_MOST = 256
"""The needs, events and keys that a descriptor may have, each."""
_FIXED = ("version", "points", "deadlines", "max_concurrency", "handle_client", "handle_required", "accounts")
"""The fields of a descriptor that may not depend on the arguments."""
_UNKNOWN_FIELD = b"\xfa\x7f\x03new"  # field 2047, which no version of the contract has
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_KEY = rf"(?:{_NAME}/)?{_NAME}"
_VALUES = rf"\(\s*(?:{_NAME})?(?:\s*,\s*(?:{_NAME})?)*\s*\)"
_REQUIREMENT = rf"\s*(?:!\s*{_KEY}|{_KEY}(?:\s*(?:==?|!=)\s*(?:{_NAME})?|\s+(?:in|notin)\s*{_VALUES})?)\s*"
_SELECTOR = re.compile(rf"{_REQUIREMENT}(?:,{_REQUIREMENT})*")
"""A label selector in Kubernetes' string form."""
READY_S: float = 5.0
"""The time for an instance to be ready after a host that had drained it came back."""
_LARGEST = 16 * 1024 * 1024
"""The largest request that the kit sends."""
_CYCLE_POINTS = (
    "PRE_FILTER",
    "FILTER",
    "PRE_SCORE",
    "SCORE",
    "RESERVE",
    "PERMIT",
)


def offers_trial(subject: Subject) -> bool:
    """Return True if the instance named the feature "configure-trial"."""
    return "configure-trial" in subject.hello.features


@case(
    "handshake.answer",
    "core",
    "The answer has all required fields: majors, plugins with names and points, an instance id, a "
    "start time.",
    attaches=False,
)
def _handshake_answer(host: Host) -> None:
    hello = host.handshake()
    if not any(version.major == 1 for version in hello.supported):
        found = ", ".join(str(version.major) for version in hello.supported) or "none"
        raise BrokenError(f"Handshake supports the majors {found}; the kit speaks major 1")
    if not hello.instance_id:
        raise BrokenError("Handshake answers no instance_id")
    if len(hello.instance_id) > 128:
        raise BrokenError(f"the instance_id has {len(hello.instance_id)} characters; 128 is the limit")
    if not hello.HasField("started_at") or hello.started_at.seconds <= 0:
        raise BrokenError("Handshake answers no started_at")
    if 0 < hello.max_message_bytes < MIN_BYTES:
        raise BrokenError(
            f"Handshake answers max_message_bytes of {hello.max_message_bytes};"
            f" {MIN_BYTES} is the smallest limit"
        )
    names = [plugin.name for plugin in hello.plugins]
    if not names:
        raise BrokenError("Handshake answers no plugins; a server serves at least one")
    if not all(names) or len(set(names)) != len(names):
        raise BrokenError(f"every plugin needs a name of its own; Handshake answers {names}")
    for plugin in hello.plugins:
        _check_descriptor(plugin)


def _check_descriptor(plugin: identity.PluginDescriptor) -> None:
    """Raise BrokenError for a descriptor that a host refuses."""
    if not any(point in identity.ExtensionPoint.values() and point for point in plugin.points):
        raise BrokenError(f"the plugin {plugin.name!r} declares no extension point")
    for need in plugin.needs:
        if need.kind not in identity.DeclaredNeed.Kind.values() or not need.kind:
            raise BrokenError(f"the plugin {plugin.name!r} declares a need of the unknown kind {need.kind}")
        if (need.kind == identity.DeclaredNeed.KIND_OBJECT) != bool(need.resource):
            raise BrokenError("a need has a resource with KIND_OBJECT, and with no other kind")
        if need.resource in ("pods", "nodes") or need.resource != need.resource.lower():
            raise BrokenError(
                f"the plugin {plugin.name!r} needs objects of {need.resource!r}: pods and nodes have kinds of"
                " their own; write another resource as its plural in lower case, with its group"
            )
    declared: dict[str, Sized] = {
        "needs": plugin.needs,
        "events": plugin.events,
        "reads_shared": plugin.reads_shared,
        "reads.label_keys": plugin.reads.label_keys,
    }
    for field, values in declared.items():
        if len(values) > _DECLARED_AT_MOST:
            raise BrokenError(
                f"the plugin {plugin.name!r} declares {len(values)} {field}; {_DECLARED_AT_MOST} is the limit"
            )


@case(
    "handshake.points",
    "core",
    "Every declared point is one of the contract, and each is named once.",
    attaches=False,
)
def _handshake_points(host: Host) -> None:
    points = list(host.subject.plugin.points)
    for point in points:
        if point == 0 or point not in identity.ExtensionPoint.values():
            raise BrokenError(f"the descriptor declares the unknown point {point}")
        if points.count(point) > 1:
            raise BrokenError(f"the descriptor declares the point {spelled(point)} twice")
    if number_of("NORMALIZE_SCORE") in points and not host.subject.has("SCORE"):
        raise BrokenError("the descriptor declares normalizeScore without score")


@case(
    "handshake.scope",
    "core",
    "A declared scope has terms that a host can read, each with a condition.",
    lambda subject: subject.plugin.HasField("scope"),
    attaches=False,
)
def _handshake_scope(host: Host) -> None:
    terms = host.subject.plugin.scope.terms
    if len(terms) > _DECLARED_AT_MOST:
        raise BrokenError(f"the scope has {len(terms)} terms; {_DECLARED_AT_MOST} is the limit")
    for term in terms:
        lists = (
            term.annotation_keys,
            term.namespaces,
            term.resources,
            term.device_classes,
            term.storage_classes,
        )
        if not term.label_selector and not any(lists):
            raise BrokenError(
                "a term of the scope has no condition, so every pod is inside: leave scope unset"
            )
        if any(not name for names in lists for name in names):
            raise BrokenError("a term of the scope names an empty name")
        if term.label_selector and not _SELECTOR.fullmatch(term.label_selector):
            raise BrokenError(f"no host can read the label selector {term.label_selector!r} of the scope")


@case(
    "handshake.repeat",
    "core",
    "Handshake has no side effects: ten of them get the same answer.",
    attaches=False,
)
def _handshake_repeat(host: Host) -> None:
    first = host.handshake()
    for _ in range(9):
        if host.handshake() != first:
            raise BrokenError(
                "a repeated Handshake gets another answer; it stays as long as the process lives"
            )


@case(
    "handshake.newer",
    "core",
    "A newer host is answered as well: more majors and features, and fields that the plugin does not know.",
    attaches=False,
)
def _handshake_newer(host: Host) -> None:
    request = identity.HandshakeRequest(
        host_version="99.0",
        host_epoch=host.world.epoch,
        attachment_id=new_id(),
        offered=[identity.ContractVersion(major=1, minor=99), identity.ContractVersion(major=99)],
        features=["a-feature-of-the-future"],
        credential=host.target.credential,
    )
    request.MergeFromString(_UNKNOWN_FIELD)
    hello = host.call("Handshake", request)
    if not any(version.major == 1 for version in hello.supported):
        raise BrokenError("Handshake leaves out major 1, because the host offers a later one too")


@case(
    "configure.accepted",
    "core",
    "The plugin accepts its arguments.",
    attaches=False,
)
def _configure_accepted(host: Host) -> None:
    attachment_id = new_id()
    host.handshake(attachment_id)
    host.configure(attachment_id)


@case(
    "configure.descriptors",
    "core",
    "The answer to Configure describes configured plugins alone, each once, and changes only what may"
    " depend on the arguments.",
    attaches=False,
)
def _configure_descriptors(host: Host) -> None:
    attachment_id = new_id()
    said = {plugin.name: plugin for plugin in host.handshake(attachment_id).plugins}
    answer = host.configure(attachment_id)
    names = [plugin.name for plugin in answer.plugins]
    for plugin in answer.plugins:
        if plugin.name != host.subject.plugin.name:
            raise BrokenError(
                f"the answer to Configure describes the plugin {plugin.name!r}, which was not configured"
            )
        if names.count(plugin.name) > 1:
            raise BrokenError(f"the answer to Configure describes the plugin {plugin.name!r} twice")
        _check_descriptor(plugin)
        for field in _FIXED:
            if not _equal(field, plugin, said[plugin.name]):
                raise BrokenError(
                    f"the answer to Configure declares another {field} than the handshake; this field may not"
                    " depend on the arguments"
                )


def _equal(field: str, one: identity.PluginDescriptor, other: identity.PluginDescriptor) -> bool:
    """Return True if a field is the same in two descriptors; the order of points has no meaning."""
    if field == "points":
        return set(one.points) == set(other.points)
    same: bool = getattr(one, field) == getattr(other, field)
    return same


@case(
    "configure.unknown-id",
    "core",
    "An attachment_id that no Handshake named gets PERMISSION_DENIED, and ends no attachment.",
)
def _configure_unknown_id(host: Host) -> None:
    host.refused("Configure", host.configuration(new_id()), REFUSED)
    host.probe()


@case(
    "configure.repeat",
    "core",
    "Configure may be repeated ten times, and the attachment goes on.",
)
def _configure_repeat(host: Host) -> None:
    for number in range(10):
        answer = host.call("Configure", host.configuration(host.attachment_id))
        if answer.error:
            raise BrokenError(f"Configure number {number + 2} refuses the same arguments: {answer.error}")
    _goes_on(host)


@case(
    "configure.refusal",
    "core",
    "The host's refusal of a new attachment is answered, and the attachment before it goes on.",
)
def _configure_refusal(host: Host) -> None:
    other = new_id()
    host.handshake(other)
    refusal = identity.ConfigureRequest(attachment_id=other, accepted=False, reason="the kit refuses")
    host.call("Configure", refusal)
    _goes_on(host)
    host.refused("Probe", identity.ProbeRequest(attachment_id=other), REFUSED)


@case(
    "configure.another",
    "core",
    "A Configure with a new id begins a new attachment and ends the one before.",
)
def _configure_another(host: Host) -> None:
    old = host.attachment_id
    host.attach()
    _goes_on(host)
    host.refused("Probe", identity.ProbeRequest(attachment_id=old), REFUSED)


@case(
    "configure.remembers",
    "core",
    "The plugin remembers the last 64 ids that Handshakes named.",
)
def _configure_remembers(host: Host) -> None:
    first = new_id()
    host.handshake(first)
    for _ in range(63):
        host.handshake()
    try:
        host.configure(first)
    except CallError as err:
        raise BrokenError(f"after 63 more Handshakes, {err}") from None


@case(
    "configure.trial",
    "core",
    "A trial of arguments is answered, and neither begins nor ends an attachment.",
    offers_trial,
)
def _configure_trial(host: Host) -> None:
    answer = host.call("Configure", host.configuration(host.attachment_id, trial=True))
    if answer.error:
        raise BrokenError(f"the trial refuses arguments that Configure accepted: {answer.error}")
    _goes_on(host)


@case(
    "configure.unknown-fields",
    "core",
    "Fields and features that the plugin does not know are skipped.",
    attaches=False,
)
def _configure_unknown_fields(host: Host) -> None:
    attachment_id = new_id()
    host.handshake(attachment_id)
    request = host.configuration(attachment_id)
    request.MergeFromString(_UNKNOWN_FIELD)
    request.plugins[0].MergeFromString(_UNKNOWN_FIELD)
    answer = host.call("Configure", request)
    if answer.error:
        raise BrokenError(f"Configure refuses a request with unknown fields: {answer.error}")


@case(
    "probe.answer",
    "core",
    "Probe answers the instance_id of the handshake, at once, and becomes ready.",
)
def _probe_answer(host: Host) -> None:
    _becomes_ready(host, host.ends_at - 1.0)


def _becomes_ready(host: Host, until_s: float) -> None:
    """Probe until the instance is ready, at most until `until_s` (monotonic). Raises BrokenError."""
    said = host.handshake().instance_id
    while True:
        answer = host.probe()
        if answer.instance_id != said:
            raise BrokenError(
                f"Probe answers the instance_id {answer.instance_id!r}; the handshake says {said!r}"
            )
        if answer.ready:
            return
        if monotonic_s() > until_s:
            raise BrokenError(f"the instance does not become ready: {answer.message or 'no message'}")
        time.sleep(0.2)


@case(
    "probe.other-id",
    "core",
    "Probe refuses another attachment_id with PERMISSION_DENIED.",
)
def _probe_other_id(host: Host) -> None:
    host.refused("Probe", identity.ProbeRequest(attachment_id=new_id()), REFUSED)


@case(
    "drain.answer",
    "core",
    "Drain answers at once, may be repeated, and a host may attach again afterwards, to a ready instance.",
)
def _drain_answer(host: Host) -> None:
    request = identity.DrainRequest(attachment_id=host.attachment_id, reason="the kit is done with this case")
    request.grace.FromSeconds(1)
    for _ in range(2):
        host.call("Drain", request, 2.0)
    host.attach()
    _becomes_ready(host, min(host.ends_at - 1.0, monotonic_s() + READY_S * host.target.time_factor))
    _goes_on(host)


@case(
    "drain.other-id",
    "core",
    "Drain refuses another attachment_id with PERMISSION_DENIED.",
)
def _drain_other_id(host: Host) -> None:
    host.refused("Drain", identity.DrainRequest(attachment_id=new_id()), REFUSED)
    _goes_on(host)


@case(
    "attachment.other-id",
    "core",
    "A call of a cycle with another attachment_id gets PERMISSION_DENIED.",
    declares(*_CYCLE_POINTS),
)
def _attachment_other_id(host: Host) -> None:
    rpc, request = _first_request(host)
    request.ctx.attachment_id = new_id()
    host.refused(rpc, request, REFUSED)
    _goes_on(host)


@case(
    "attachment.metadata",
    "core",
    "A call without metadata is answered; one whose metadata names another attachment or plugin than its"
    " message is answered by the message, or refused with INVALID_ARGUMENT.",
)
def _attachment_metadata(host: Host) -> None:
    probe = identity.ProbeRequest(attachment_id=host.attachment_id)
    host.begin("Probe", probe, metadata=()).answer()
    _answered_or_refused(host, "Probe", probe, metadata_of(new_id()))
    if not host.subject.has(*_CYCLE_POINTS):
        return
    rpc, request = _first_request(host)
    if rpc not in ("Reserve", "Permit"):  # an answer would begin a reservation
        host.begin(rpc, request, metadata=()).answer()
        _answered_or_refused(host, rpc, request, metadata_of(new_id(), host.subject.plugin.name))
        _answered_or_refused(host, rpc, request, metadata_of(host.attachment_id, "another-plugin"))
    _goes_on(host)


def _answered_or_refused(host: Host, rpc: str, request: Any, metadata: tuple[tuple[str, str], ...]) -> None:
    """Make a call whose metadata differs from the message. Raises BrokenError for another refusal."""
    try:
        host.begin(rpc, request, metadata=metadata).answer()
    except CallError as err:
        # A stranger's id in the metadata is refused as such too.
        if err.code not in (grpc.StatusCode.INVALID_ARGUMENT, REFUSED):
            raise BrokenError(f"{err}; the contract asks for INVALID_ARGUMENT") from None


@case(
    "attachment.ended-cycles",
    "core",
    "EndCycles is answered or UNIMPLEMENTED: for known cycles, unknown ones, twice, and unknown outcomes.",
    declares(*_CYCLE_POINTS),
)
def _attachment_ended_cycles(host: Host) -> None:
    ended = [scheduling.EndCyclesRequest().ended.add(cycle_id=f"never-seen-{number}") for number in range(3)]
    request = scheduling.EndCyclesRequest(
        plugin=host.subject.plugin.name, ended=ended, attachment_id=host.attachment_id
    )
    request.ended[0].MergeFromString(b"\x10\x2a")  # the outcome 42
    for _ in range(2):
        try:
            host.call("EndCycles", request)
        except CallError as err:
            if err.code is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            raise skipped("the plugin does not offer EndCycles, which is allowed") from None
    _goes_on(host)


def _first_request(host: Host) -> tuple[str, Any]:
    """Return the first call of a cycle that the plugin gets, and its request in a new cycle."""
    for name in _CYCLE_POINTS:
        if host.subject.has(name):
            rpc = "".join(part.title() for part in name.split("_"))
            cycle = host.cycle()
            nodes = host.world.candidates
            fields = (
                chosen(host, nodes[0]) if rpc in ("Reserve", "Permit") else {"candidates": host.candidates()}
            )
            return rpc, cycle.request(rpc, cycle.context(complete=True), **fields)
    raise skipped("the plugin declares no point of a scheduling cycle")


def _goes_on(host: Host) -> None:
    """Check that the attachment still serves calls."""
    host.probe()
    subject = host.subject
    if subject.has("PRE_FILTER"):
        Way(host).pre_filter()
    elif subject.has("FILTER"):
        Way(host).filter()


# --- who may call -----------------------------------------------------------------------------------------


@case(
    "handshake.credential",
    "core",
    "A host without the secret, or with another one, gets UNAUTHENTICATED.",
    attaches=False,
)
def _credential(host: Host) -> None:
    secret = host.target.credential
    if not secret:
        raise skipped("the kit knows no secret that the plugin expects; --credential-file names one")
    host.handshake()
    other = chr(ord(secret[-1]) ^ 1)
    for wrong in (
        "",
        secret[:-1],
        secret + "x",
        secret[:-1] + other,
        other + secret[1:],
        secret.swapcase() + " ",
    ):
        request = identity.HandshakeRequest(
            host_version="conformance-kit",
            host_epoch=host.world.epoch,
            attachment_id=new_id(),
            offered=[identity.ContractVersion(major=1)],
            credential=wrong,
        )
        try:
            host.refused("Handshake", request, grpc.StatusCode.UNAUTHENTICATED)
        except BrokenError as err:
            how = "no credential" if not wrong else "a wrong credential"
            raise BrokenError(f"with {how}, {err}") from None
        host.refused("Configure", host.configuration(request.attachment_id), REFUSED)


@case(
    "attachment.every-call",
    "core",
    "Every call with another attachment_id gets PERMISSION_DENIED, and changes nothing: SyncState, Reconcile,"
    " Unreserve, PostBind, EndCycles too.",
)
def _every_call(host: Host) -> None:
    """Make each call that the plugin offers with the id of an attachment that is over, and a strange id."""
    subject, plugin = host.subject, host.subject.plugin.name
    over = host.attachment_id
    host.attach()
    for attachment_id in (over, new_id()):
        requests: list[tuple[str, Any]] = []
        if subject.keeps_state:
            chunks = stream([host.world.full()], attachment_id)
            requests.append(("SyncState", chunks))
        if subject.has("RESERVE", "PERMIT"):
            pages = host.pages([[]])
            pages[0].attachment_id = attachment_id
            requests.append(("Reconcile", pages))
        if subject.has("RESERVE"):
            requests.append(
                ("Unreserve", scheduling.UnreserveRequest(plugin=plugin, attachment_id=attachment_id))
            )
        if subject.has("POST_BIND"):
            requests.append(
                ("PostBind", scheduling.PostBindRequest(plugin=plugin, attachment_id=attachment_id))
            )
        if subject.has(*_CYCLE_POINTS):
            requests.append(
                ("EndCycles", scheduling.EndCyclesRequest(plugin=plugin, attachment_id=attachment_id))
            )
        for rpc, request in requests:
            codes = [REFUSED]
            if rpc in ("Reconcile", "EndCycles"):
                codes.append(grpc.StatusCode.UNIMPLEMENTED)
            host.refused(rpc, request, *codes)
    if subject.keeps_state:
        chunks = stream(host.world.chunks(3), host.attachment_id)
        chunks[-1].attachment_id = over
        host.refused("SyncState", chunks, REFUSED, metadata=())  # which would contradict the message
    _goes_on(host)


# --- sizes --------------------------------------------------------------------------------------------------


@case(
    "calls.largest",
    "core",
    "Requests as large as the instance declares to receive (up to 16 MiB) are answered.",
)
def _largest(host: Host) -> None:
    most = min(host.subject.max_message_bytes, _LARGEST)
    attachment_id = new_id()
    host.handshake(attachment_id)
    host.configure(attachment_id, max_message_bytes=most)
    subject = host.subject
    if subject.keeps_state:
        chunks = stream([host.world.full()], attachment_id)
        _pad(chunks[0], most)
        answer = host.call("SyncState", chunks, 30.0)
        if answer.need_full:
            raise BrokenError(f"SyncState answers need_full to a chunk of {most} bytes")
    if subject.has("RESERVE", "PERMIT"):
        pages = host.pages([[]])
        _pad(pages[0], most)
        try:
            host.call("Reconcile", pages, 30.0)
        except CallError as err:
            if err.code is not grpc.StatusCode.UNIMPLEMENTED:
                raise
    if subject.has(*_CYCLE_POINTS):
        rpc, request = _first_request(host)
        if rpc not in ("Reserve", "Permit"):  # an answer would begin a reservation
            _pad(request, most)
            host.call(rpc, request, 30.0)
    probe = identity.ProbeRequest(attachment_id=attachment_id)
    host.call("Probe", probe)


def _pad(message: Any, size: int) -> None:
    """Fill a message up to `size` bytes, with a field of a newer host."""
    left = size - message.ByteSize()
    # The tag of field 2047 takes two bytes, the length up to four.
    body = left - 6
    length = bytes([body & 0x7F | 0x80, body >> 7 & 0x7F | 0x80, body >> 14 & 0x7F | 0x80, body >> 21])
    message.MergeFromString(b"\xfa\x7f" + length + bytes(body))
