"""`Plan`: what of a plugin carries over to an extender: its verbs, what changes, and the entry to paste.

Refuses, with the cure, a plugin that cannot work as an extender with the settings given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from berth_sdk.errors import PluginDefinitionError
from berth_sdk.extension_points import ExtensionPoint, NodeMode, Plugin
from berth_sdk.needs import NeedKind
from berth_sdk.runtime.descriptor import Descriptor

FILTER: Final = "filter"
PRIORITIZE: Final = "prioritize"
PREEMPT: Final = "preempt"
BIND: Final = "bind"
_CARRIED: Final[Mapping[str, tuple[ExtensionPoint, ...]]] = {
    FILTER: (ExtensionPoint.PRE_FILTER, ExtensionPoint.FILTER),
    PRIORITIZE: (ExtensionPoint.SCORE,),
    PREEMPT: (ExtensionPoint.PRE_FILTER, ExtensionPoint.FILTER),
    BIND: (ExtensionPoint.BIND,),
}
"""The verbs, each with the points of which a plugin has at least one."""
_NOT_CALLED: Final[Mapping[ExtensionPoint, str]] = {
    ExtensionPoint.PRE_ENQUEUE: "PreEnqueue is not called: the plugin keeps no pod out of the queue.",
    ExtensionPoint.QUEUE_SORT: "QueueSort is not called: kube-scheduler's own order counts.",
    ExtensionPoint.POST_FILTER: "PostFilter is not called: kube-scheduler's preemption looks for victims.",
    ExtensionPoint.RESERVE: "Reserve and Unreserve are not called: the plugin does not learn a pod's node.",
    ExtensionPoint.PERMIT: "Permit is not called: the plugin cannot make a pod wait.",
    ExtensionPoint.PRE_BIND: "PreBind is not called: nothing is prepared before the pod is bound.",
    ExtensionPoint.POST_BIND: "PostBind is not called: the plugin does not learn that a pod is bound.",
}
API_FLAGS: Final = "--server (with --token-file or --client-certificate) or --in-cluster"


@dataclass(frozen=True, slots=True)
class Plan:
    """The verbs, and whether the server follows nodes and pods itself. `facts`: what changes, a line each."""

    name: str
    verbs: tuple[str, ...]
    facts: tuple[str, ...]
    names_only: bool
    """True for a plugin that needs nothing of nodes but their names."""
    node_cache_capable: bool
    keeps_copy: bool
    """True if the server lists and watches nodes, and pods where the plugin needs them."""

    @staticmethod
    def of(plugin: type, descriptor: Descriptor, *, node_cache_capable: bool, has_api: bool) -> Plan:
        """Return the plan of a plugin class. Raises PluginDefinitionError, with the cure.

        `has_api`: the server has access to an API server.
        """
        verbs = tuple(
            verb for verb, points in _CARRIED.items() if any(descriptor.has(point) for point in points)
        )
        asks_about_nodes = verbs != (BIND,)
        names_only = not descriptor.keeps_state
        _check(plugin, descriptor, verbs, node_cache_capable=node_cache_capable, has_api=has_api)
        keeps_copy = has_api and asks_about_nodes and not names_only
        facts = tuple(_facts(descriptor, verbs, keeps_copy=keeps_copy, by_name=node_cache_capable))
        return Plan(descriptor.name, verbs, facts, names_only, node_cache_capable, keeps_copy)

    def text(self, url: str, *, has_tls: bool, wants_client_certificate: bool) -> str:
        """Return the facts as comments, and the entry of KubeSchedulerConfiguration: YAML as a whole.

        `url`: of the server.
        """
        lines = [f"# {self.name} as an HTTP extender of kube-scheduler: {', '.join(self.verbs)}"]
        lines += [f"# - {fact}" for fact in self.facts]
        lines += ["# Paste into KubeSchedulerConfiguration:", "extenders:", f"- urlPrefix: {url}"]
        lines += [f"  {verb}Verb: {verb}" for verb in self.verbs]
        if PRIORITIZE in self.verbs:
            lines.append("  weight: 1")
        if has_tls:
            lines += ["  enableHTTPS: true", "  tlsConfig:"]
            lines.append("    caFile: /path/to/ca.crt  # the authority of this server's certificate")
            if wants_client_certificate:
                lines.append("    certFile: /path/to/client.crt  # kube-scheduler's, for --tls-client-ca")
                lines.append("    keyFile: /path/to/client.key")
        lines.append(f"  nodeCacheCapable: {str(self.node_cache_capable).lower()}")
        return "\n".join(lines)


def _check(
    cls: type, descriptor: Descriptor, verbs: tuple[str, ...], *, node_cache_capable: bool, has_api: bool
) -> None:
    name = descriptor.name
    if not verbs:
        points = ", ".join(point.config_name for point in descriptor.points)
        raise PluginDefinitionError(
            f"{name} takes part in {points}, and an extender in filter, score and bind only: serve it to"
            " berth with --listen"
        )
    if getattr(cls, "handle_required", None):
        raise PluginDefinitionError(
            f"{name} declares handle_required, and an extender cannot call kube-scheduler: serve it to berth"
            " with --listen"
        )
    resources = [need.resource for need in descriptor.needs if need.kind is NeedKind.OBJECT]
    if resources:
        raise PluginDefinitionError(
            f"{name} needs objects of {', '.join(resources)}, and an extender follows only nodes and pods:"
            " remove the need, or serve the plugin to berth with --listen"
        )
    if has_api:
        return
    if BIND in verbs:
        raise PluginDefinitionError(
            f"{name} has Bind, and an extender posts the Binding itself: give {API_FLAGS}"
        )
    declared = {need.kind for need in getattr(cls, "needs", Plugin.needs)}
    if declared & {NeedKind.POD_SUMMARY, NeedKind.POD_OBJECT}:
        raise PluginDefinitionError(
            f"{name} needs the pods on nodes (Need.pods), and requests to an extender do not have them: give"
            f" {API_FLAGS}"
        )
    if node_cache_capable and descriptor.keeps_state:
        raise PluginDefinitionError(
            f"{name} needs data of nodes, and with --node-cache-capable requests have only their names: give"
            f" {API_FLAGS}, or leave out --node-cache-capable, or declare node_mode NAMES and no needs if the"
            " plugin reads names only"
        )


def _facts(
    descriptor: Descriptor, verbs: tuple[str, ...], *, keeps_copy: bool, by_name: bool
) -> Iterator[str]:
    """Yield what is different from a plugin that berth calls."""
    points = descriptor.points
    if FILTER in verbs:
        yield "Filter runs after all filters of kube-scheduler, over the nodes that they left."
        if not by_name:
            yield (
                "kube-scheduler scores the nodes of an answer as nodes without pods: its own scores do not"
                " see their load. --node-cache-capable avoids this."
            )
    if ExtensionPoint.PRE_FILTER in points:
        seen = "all nodes of the copy" if keeps_copy else "only the nodes of the request"
        yield f"PreFilter runs again in each request and sees {seen}."
    if PRIORITIZE in verbs:
        yield (
            "Scores 0..100 become 0..10, rounded to the nearest: scores that are not multiples of 10 lose"
            " precision."
        )
        yield "Prioritize is not called for a single node, and its failures are ignored by kube-scheduler."
    if PREEMPT in verbs:
        yield "Preempt keeps the nodes that the plugin passes without the victims, with these victims."
        if descriptor.keeps_state and not keeps_copy:
            yield "Preempt judges nodes as earlier requests had them, and leaves out nodes that none had."
    if BIND in verbs:
        yield (
            "Bind replaces every other binder. After Skip, and where the host is to bind, this server posts"
            " the Binding."
        )
        yield "Bind gets an empty cycle state: what earlier points stored is gone."
    if FILTER in verbs or PRIORITIZE in verbs:
        yield from _about_state(descriptor, keeps_copy=keeps_copy)
    yield from (text for point, text in _NOT_CALLED.items() if point in points)
    if descriptor.events is not None or descriptor.has_hint:
        yield "Events and hints have no effect: kube-scheduler retries the pod at nearly any event."
    if descriptor.depends_on is not None:
        yield "depends_on has no effect: no answer is kept for the next pod."
    if descriptor.deadlines:
        yield "Deadlines have no effect: set httpTimeout of the extender (default 5 s)."
    if descriptor.reads_shared:
        yield "Values of other plugins (reads_shared) are never there."
    if descriptor.handle_required:
        yield "Calls of the handle raise HandleError: there is no host to call."


def _about_state(descriptor: Descriptor, *, keeps_copy: bool) -> Iterator[str]:
    if keeps_copy:
        yield (
            "Nodes and pods are those of the API server: a pod that kube-scheduler is still binding does not"
            " count on its node yet."
        )
    elif descriptor.keeps_state and descriptor.node_mode is NodeMode.SNAPSHOT:
        yield f"Pods on nodes are not known: reading them, or a node's usage, is an error. Give {API_FLAGS}."
