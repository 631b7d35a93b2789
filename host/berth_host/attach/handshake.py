"""Reads an instance's handshake: the negotiated contract and the descriptors, or why it is refused.

Unset and unknown values are read as the contract says. Each unknown value is a warning, once per attachment.
Called by `Attachment`. Source: the contract's identity.proto.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from berth_sdk.errors import PluginDefinitionError, SelectorError
from berth_sdk.events import EventInterest, Hint, action_of_word
from berth_sdk.extension_points import (
    COLUMNS_OF_PODS,
    Account,
    DependsOn,
    ExtensionPoint,
    NodeColumn,
    NodeLabel,
    NodeMode,
    PodSensitivity,
    ScoreNormalization,
)
from berth_sdk.kept.follows import BY_ROW
from berth_sdk.needs import Need, NeedKind
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.pod_fields import PodField
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.scope import Scope
from berth_sdk.selectors import LabelSelector
from berth_sdk.wire import records as wire
from berth_sdk.wire.certificate import FEATURE as HANDLE_TLS
from berth_sdk.wire.frames import FEATURE as FRAMED
from berth_sdk.wire.message_limit import DEFAULT_BYTES, FLAG, MIN_BYTES
from berth_sdk.wire.requests import TRIAL

from berth_host.attach.configured_places import Place, WantedPlugin
from berth_host.attach.remarks import Remarks
from berth_host.errors import HostError
from berth_host.model.known_resources import misspelt

OFFERED: Final = ((1, 0),)
"""The highest minor version of each major version of the contract that the host supports."""
FEATURES: Final = frozenset({FRAMED, HANDLE_TLS, TRIAL})
"""The optional features of the contract that the host supports."""
MAX_NAME_LENGTH: Final = 128
"""The longest instance id and plugin version, in characters; both appear in logs and conditions."""
LONGEST_WISH_S: Final = 86_400.0
"""The longest requested deadline, in seconds. The limits of the extension points, far lower, apply later."""
MAX_DECLARED: Final = 256
"""The most events, needs and shared reads of one plugin: the host checks them on every cluster change."""
E = TypeVar("E")


class RefusedError(HostError):
    """The instance does not fit the configuration. `reason` is sent to the instance; the refusal is final."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class ArgumentsRefusedError(RefusedError):
    """The plugin refused its arguments. `words`: the plugin's own text."""

    def __init__(self, words: str) -> None:
        super().__init__(f"refuses its arguments: {words}")


class DescriptorRefusedError(RefusedError):
    """The plugin accepted its arguments, and declares with them what it may not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """The handshake of an instance that can be used.

    `plugins`: the descriptors of the configured plugins that the instance serves as configured. `unusable`:
    why the other configured plugins cannot be used, by name, each as the end of a sentence.
    `max_message_bytes`: the size of the largest message, of the two sides' limits the smaller one.
    """

    instance_id: str
    started_at_s: float
    contract: tuple[int, int]
    features: tuple[str, ...]
    max_message_bytes: int
    plugins: tuple[Descriptor, ...]
    unusable: Mapping[str, str]
    warnings: tuple[str, ...]


def read_handshake(
    reply: identity_pb2.HandshakeResponse, place: Place, offered: frozenset[str] = FEATURES
) -> Introduction:
    """Check and read the instance's answer to Handshake.

    `offered`: the features that the host offered. Raises RefusedError if no plugin can be used.
    """
    contract = _negotiated(reply)
    if not reply.instance_id:
        raise RefusedError("the handshake names no instance_id")
    if len(reply.instance_id) > MAX_NAME_LENGTH:
        raise RefusedError(f"the handshake names an instance_id of more than {MAX_NAME_LENGTH} characters")
    if not reply.HasField("started_at"):
        raise RefusedError("the handshake does not say when the process started (started_at)")
    names = [message.name for message in reply.plugins]
    if len(set(names)) != len(names):
        raise RefusedError("the handshake names a plugin twice")
    wanted = {plugin.name for plugin in place.plugins}
    warnings = Remarks()
    served = [_descriptor(message, warnings) for message in reply.plugins if message.name in wanted]
    if not served:
        raise RefusedError(
            f"the instance serves {_listed(names)}, and the configuration expects"
            f" {_listed(sorted(wanted))} at {place.title}"
        )
    absent = [] if place.is_open else sorted(wanted.difference(names))
    unusable = dict.fromkeys(absent, f"is not served by the instance at {place.title}")
    features = tuple(sorted(offered.intersection(reply.features)))
    no_way_back = why_no_way_back(place, features, over_tls=HANDLE_TLS in offered)
    lacking = {
        found.name: lack
        for found in served
        if (lack := _lack(found, place.plugin(found.name)) or _lacks_way_back(found, no_way_back))
    }
    if len(lacking) == len(served):
        raise RefusedError("; ".join(f"plugin {name} {lack}" for name, lack in lacking.items()))
    for feature in reply.features:
        if feature not in FEATURES:
            warnings.add(f"unknown feature {feature!r} is ignored")
    return Introduction(
        instance_id=reply.instance_id,
        started_at_s=reply.started_at.seconds + reply.started_at.nanos / 1e9,
        contract=contract,
        features=features,
        max_message_bytes=min(place.max_message_bytes, _limit_of(reply)),
        plugins=tuple(found for found in served if found.name not in lacking),
        unusable=unusable | lacking,
        warnings=tuple(warnings.texts),
    )


_FIXED: Final = (
    "version",
    "points",
    "deadlines",
    "max_concurrency",
    "handle_client",
    "handle_required",
    "accounts",
)
"""The fields of a descriptor that may not depend on the arguments, as the contract spells them."""


def with_arguments(introduction: Introduction, reply: identity_pb2.ConfigureResponse) -> Introduction:
    """Return the introduction with the descriptors that the answer to Configure has, in place of its own.

    Raises DescriptorRefusedError for a descriptor that cannot be used, or that differs in another field than
    arguments may change.
    """
    warnings, known = Remarks(), {item.name: item for item in introduction.plugins}
    found: dict[str, Descriptor] = {}
    for message in reply.plugins:
        name = message.name
        if name not in known or name in found:
            what = "twice" if name in found else "which was not configured"
            raise DescriptorRefusedError(f"the answer to Configure describes plugin {name!r} {what}")
        try:
            described = found[name] = _descriptor(message, warnings)
        except RefusedError as err:
            raise DescriptorRefusedError(f"{err.reason} (in the answer to Configure)") from err
        for field in _FIXED:
            if getattr(described, field) != getattr(known[name], field):
                raise DescriptorRefusedError(
                    f"plugin {name} declares another {field} in the answer to Configure than in the"
                    f" handshake, and {field} may not depend on the arguments: declare it once, before them"
                )
    return replace(
        introduction,
        plugins=tuple(found.get(item.name, item) for item in introduction.plugins),
        warnings=(*introduction.warnings, *warnings.texts),
    )


def _lack(descriptor: Descriptor, wanted: WantedPlugin | None) -> str:
    """Return which configured extension points the plugin does not implement, as the end of a sentence.

    Its rule would never run at those points. A plugin that manages resources must implement Filter. Empty if
    the plugin has all points.
    """
    has = {point.config_name for point in descriptor.points}
    if wanted is not None and wanted.why_it_must_filter and "filter" not in has:
        return wanted.why_it_must_filter
    for profile in wanted.profiles if wanted is not None else ():
        lacks = sorted(profile.named - has)
        if lacks:
            return (
                f"does not implement {_listed(lacks)}, where the profile {profile.scheduler_name} enables it;"
                f" it implements {_listed(sorted(has))}: give the plugin that method, or take it out of"
                f" {', '.join(f'plugins.{point}' for point in lacks)}"
            )
    return ""


def why_no_way_back(place: Place, features: Collection[str], *, over_tls: bool) -> str:
    """Return why plugins at this place cannot call the host; empty if they can.

    The way back on this machine is in plaintext. A plugin behind TLS may be on another machine, and its token
    must not be sent in plaintext.

    Args:
        features: The features that both sides support.
        over_tls: True if the host also serves the way back over TLS.
    """
    if place.tls is None or HANDLE_TLS in features:
        return ""
    if over_tls:
        return 'its server does not know the feature "handle-tls": serve it with a newer berth-sdk'
    return "the host serves none over TLS: give it `handle` in its BerthConfiguration"


def _lacks_way_back(descriptor: Descriptor, why: str) -> str:
    if not (why and descriptor.handle_required):
        return ""
    return (
        f"calls its host and gets no way back, because {why};"
        " or, if the plugin works without those calls, declare handle_required = False in its class"
    )


def _limit_of(reply: identity_pb2.HandshakeResponse) -> int:
    """Return the size in bytes of the largest message that the instance receives."""
    announced = reply.max_message_bytes or DEFAULT_BYTES
    if announced < MIN_BYTES:
        raise RefusedError(
            f"the handshake announces max_message_bytes of {announced}, and calls need {MIN_BYTES} or more:"
            f" raise the limit of the plugin's server (berth-sdk serve {FLAG})"
        )
    return announced


def _negotiated(reply: identity_pb2.HandshakeResponse) -> tuple[int, int]:
    """Return the highest major version that both support, with the lower of the two minor versions."""
    theirs = {version.major: version.minor for version in reply.supported}
    common = [(major, min(minor, theirs[major])) for major, minor in OFFERED if major in theirs]
    if not common:
        raise RefusedError(
            f"incompatible contract: the host supports {_versions(OFFERED)},"
            f" the plugin supports {_versions(sorted(theirs.items()))};"
            " install releases of both that share a major version"
        )
    return max(common)


def _descriptor(message: identity_pb2.PluginDescriptor, warnings: Remarks) -> Descriptor:
    name = message.name
    read = _Reader(name, warnings)
    points = tuple(point for number in message.points if (point := read.point(number)) is not None)
    if not points:
        raise RefusedError(f"plugin {name} declares no extension point that this host knows")
    declared: dict[str, Sized] = {
        "events": message.events,
        "needs": message.needs,
        "reads_shared": message.reads_shared,
        "reads.label_keys": message.reads.label_keys,
        "scope.terms": message.scope.terms,
    }
    for field, values in declared.items():
        if len(values) > MAX_DECLARED:
            raise RefusedError(
                f"plugin {name} declares {len(values)} {field}, above the limit of {MAX_DECLARED}"
            )
    mode = read.enum(NodeMode, message.node_mode, NodeMode.NAMES, "node_mode")
    needs = tuple(_need(name, need) for need in message.needs)
    has_state = mode is NodeMode.SNAPSHOT or any(need.is_state for need in needs)
    depends_on = read.depends_on(message.depends_on)
    unset_sensitivity = PodSensitivity.CLUSTER if has_state else PodSensitivity.NONE
    return Descriptor(
        name=name,
        version=message.version[:MAX_NAME_LENGTH],
        points=tuple(sorted(set(points))),
        node_mode=mode,
        needs=needs,
        pod_sensitivity=read.enum(
            PodSensitivity, message.pod_sensitivity, unset_sensitivity, "pod_sensitivity"
        ),
        normalization=read.enum(
            ScoreNormalization, message.normalization, ScoreNormalization.PLUGIN, "normalization"
        ),
        reads_shared=tuple(message.reads_shared),
        events=tuple(read.interest(event) for event in message.events) or None,
        deadlines=read.deadlines(message),
        max_concurrency=message.max_concurrency,
        has_hint=any(event.hint == identity_pb2.EventInterest.HINT_ASK_PLUGIN for event in message.events),
        has_pre_flight=ExtensionPoint.PRE_BIND in points,
        handle_client=message.handle_client,
        handle_required=message.handle_client and message.handle_required,
        depends_on=depends_on,
        reads=read.reads(message, depends_on),
        sign_fields=None if depends_on is None else read.sign_fields(message),
        host_keeps_answers=message.host_keeps_answers and depends_on in BY_ROW,
        accounts=read.accounts(message.accounts),
        scope=read.scope(message),
    )


def _need(plugin: str, message: identity_pb2.DeclaredNeed) -> Need:
    try:
        kind = NeedKind(message.kind)
    except ValueError:
        raise RefusedError(
            f"plugin {plugin} needs state of the kind {message.kind}, which this host does not know"
        ) from None
    if kind is NeedKind.OBJECT:
        _check_resource(plugin, message.resource)
    return wire.decode_need(message)


def _check_resource(plugin: str, resource: str) -> None:
    if resource in ("", "pods", "nodes"):
        raise RefusedError(
            f"plugin {plugin} needs objects of {resource or 'no resource'}:"
            " name a resource other than pods and nodes, which have kinds of their own"
        )
    meant = misspelt(resource)
    if meant is not None:
        cure = (
            f"did you mean {meant!r}?"
            if meant
            else "write its plural, with its group unless that is the core's"
        )
        raise RefusedError(f"plugin {plugin} needs objects of {resource!r}, which is not a resource; {cure}")


class _Reader:
    """A reader of declared values; unknown values are read as the contract says, with a warning."""

    def __init__(self, plugin: str, warnings: Remarks) -> None:
        self._plugin = plugin
        self._warnings = warnings

    def point(self, number: int) -> ExtensionPoint | None:
        """Return an extension point; None, with a warning, for one of a newer contract."""
        try:
            return ExtensionPoint(number)
        except ValueError:
            self._warn(f"declares the unknown extension point {number}, which is ignored")
            return None

    def enum(self, make: Callable[[int], E], number: int, unset: E, field: str) -> E:
        """Return an enum value; `unset` for 0 and, with a warning, for an unknown number."""
        if number == 0:
            return unset
        try:
            return make(number)
        except ValueError:
            self._warn(f"has the unknown {field} {number}, which is read as unset")
            return unset

    def depends_on(self, number: int) -> DependsOn | None:
        """Return what answers depend on; None for 0 and, with a warning, for an unknown number.

        None means that no answer is kept.
        """
        if number == 0:
            return None
        try:
            return DependsOn(number)
        except ValueError:
            self._warn(f"has the unknown depends_on {number}, which is read as unset")
            return None

    def interest(self, message: identity_pb2.EventInterest) -> EventInterest:
        """Return a declared event; unknown actions mean all, an invalid selector means none."""
        actions = tuple(message.actions)
        try:
            for word in actions:
                action_of_word(message.resource, word)
        except PluginDefinitionError as err:
            self._warn(f"names an unknown event action ({err}); all actions count")
            actions = ()
        selector = message.label_selector
        try:
            LabelSelector.parse(selector)
        except SelectorError as err:
            self._warn(f"has a label selector that cannot be read ({err}); all objects count")
            selector = ""
        ask = message.hint == identity_pb2.EventInterest.HINT_ASK_PLUGIN
        hint = Hint.ASK_PLUGIN if ask else Hint.QUEUE
        return EventInterest(message.resource, actions, hint, selector, tuple(message.profiles))

    def deadlines(self, message: identity_pb2.PluginDescriptor) -> dict[str, float]:
        """Return the requested deadlines in seconds, by extension point.

        Deadlines for unknown points, of zero or less, and the second one of a point are ignored, with a
        warning. None is longer than LONGEST_WISH_S.
        """
        wishes: dict[str, float] = {}
        for wish in message.deadlines:
            wished_s = wish.deadline.seconds + wish.deadline.nanos / 1e9
            try:
                point = ExtensionPoint(wish.point).config_name
            except ValueError:
                self._warn(f"requests a deadline for the unknown point {wish.point}, which is ignored")
                continue
            if wished_s <= 0:
                self._warn(f"requests a deadline of {wished_s:g} s for {point}, which is ignored")
            elif point in wishes:
                self._warn(f"requests a second deadline for {point}, which is ignored")
            else:
                wishes[point] = min(wished_s, LONGEST_WISH_S)
        return wishes

    def accounts(self, numbers: Iterable[int]) -> frozenset[Account]:
        """Return the accounts. An unknown one is left out, with a warning."""
        known = {one.value: one for one in Account}
        for number in numbers:
            if number not in known:
                self._warn(f"keeps the unknown account {number}, which is ignored")
        return frozenset(known[number] for number in numbers if number in known)

    def scope(self, message: identity_pb2.PluginDescriptor) -> tuple[Scope, ...] | None:
        """Return the terms of the plugin's scope; None if unset."""
        if not message.HasField("scope"):
            return None
        return tuple([self._term(term) for term in message.scope.terms])

    def _term(self, message: identity_pb2.PodScopeTerm) -> Scope:
        selector = message.label_selector
        try:
            LabelSelector.parse(selector)
        except SelectorError as err:
            self._warn(f"has a label selector in its scope that cannot be read ({err}); all labels count")
            selector = ""
        term = Scope(
            label_selector=selector,
            annotation_keys=tuple(message.annotation_keys),
            namespaces=tuple(message.namespaces),
            resources=tuple(message.resources),
            device_classes=tuple(message.device_classes),
            storage_classes=tuple(message.storage_classes),
        )
        if term == Scope():
            self._warn("has a term in its scope without a condition that the host knows; every pod is inside")
        return term

    def sign_fields(self, message: identity_pb2.PluginDescriptor) -> tuple[PodField, ...] | None:
        """Return the pod fields of the signature; None if unset or if a field is unknown.

        Pods that are equal in the known fields may differ in the unknown one.
        """
        if not message.HasField("sign_fields"):
            return None
        try:
            return tuple([PodField(number) for number in message.sign_fields.fields])
        except ValueError as err:
            self._warn(f"signs an unknown pod field ({err}); it is called for every waiting pod")
            return None

    def reads(
        self, message: identity_pb2.PluginDescriptor, depends_on: DependsOn | None
    ) -> frozenset[NodeColumn | NodeLabel] | None:
        """Return the parts of a row that answers follow from.

        None if unset, without a `depends_on` of one row, or, with a warning, if the host cannot tell two rows
        apart by the list.
        """
        if not message.HasField("reads") or depends_on not in (DependsOn.NODE, DependsOn.ROW):
            return None
        try:
            columns = frozenset([NodeColumn(number) for number in message.reads.columns])
        except ValueError as err:
            self._warn(f"reads an unknown column of nodes ({err}); it is asked about every node")
            return None
        of_pods = sorted(one.name for one in columns & COLUMNS_OF_PODS)
        if of_pods and depends_on is DependsOn.NODE:
            self._warn(
                f"has depends_on NODE and reads {', '.join(of_pods)}, which pods on the node change;"
                " reads is read as unset: declare depends_on ROW"
            )
            return None
        return columns | {NodeLabel(key) for key in message.reads.label_keys}

    def _warn(self, text: str) -> None:
        self._warnings.add(f"plugin {self._plugin} {text}")


def _versions(versions: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{major}.{minor}" for major, minor in versions) or "none"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "no plugin"
