"""What pods are the same to whom: the signatures of one cycle's pod, made anew for every cycle.

A plugin in the host that signs, or judges node by node, takes part (`Signer`). Called by `recall`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from berth_sdk._runtime import PluginRuntime
from berth_sdk.extension_points import DependsOn, ExtensionPoint, ScoreNormalization
from berth_sdk.needs import NeedKind
from berth_sdk.pod import Pod
from berth_sdk.signature import wishes
from berth_sdk.tables import NodeTable

from berth_host.framework.concern import concern
from berth_host.log import get_logger
from berth_host.rpc.client import PluginClient

log = get_logger()

Sign: TypeAlias = Callable[[Pod, NodeTable], Hashable]
_CHECKED_SPECS: Final = 16
_GOES_BY_MORE: Final = "its sign_spec differs for another pod with the very same spec: write it as sign"
_HOST: Final = 2
"""How many entries of a key are the host's own."""
_BY_ROW: Final = (DependsOn.NODE, DependsOn.ROW, DependsOn.NODES)
_SHARED_POINTS: Final = frozenset(
    {
        ExtensionPoint.PRE_ENQUEUE,
        ExtensionPoint.QUEUE_SORT,
        ExtensionPoint.PRE_FILTER,
        ExtensionPoint.FILTER,
        ExtensionPoint.PRE_SCORE,
        ExtensionPoint.SCORE,
    }
)


def shares_by_row(client: PluginClient) -> bool:
    """Whether the plugin's answers to the four points that look at nodes may be kept here: it lives in the
    host, is asked about every pod, judges node by node, and has no later point that needs the cycle's state.
    """
    descriptor = client.descriptor
    return (
        client.local is not None
        and client.settings.scope is None
        and descriptor.depends_on in _BY_ROW
        and descriptor.normalization is not ScoreNormalization.RPC
        and not descriptor.reads_shared
        and _SHARED_POINTS.issuperset(descriptor.points)
    )


class Signer:
    """One plugin. `by_row`: it judges node by node. `merges`: its answers are put together with those of
    others; those of one that does not sign would keep them from being shared. `of_spec`: the pod's spec says
    its signature.
    """

    __slots__ = ("by_row", "client", "merges", "name", "of_spec", "sign")

    def __init__(self, client: PluginClient, local: PluginRuntime) -> None:
        self.client = client
        self.name = client.name
        self.sign: Sign = local.sign or _all_wishes
        self.by_row = shares_by_row(client)
        self.of_spec = local.sign_spec is not None
        self.merges = self.by_row and local.sign is not None


def _all_wishes(pod: Pod, nodes: NodeTable) -> Hashable:
    return wishes(pod)


class Signers:
    """Those of a profile whose answers can be recalled at all, and the signatures of a cycle's pod."""

    def __init__(self, clients: Iterable[PluginClient]) -> None:
        self._warned: set[str] = set()
        self._mark: Final = object()
        self._unchecked = _CHECKED_SPECS
        self._by_spec_holds = True
        # In the order in which `sign` asks: first those whose signatures are known with the spec.
        self.all: Final = tuple(sorted(_signers(clients), key=lambda one: not one.of_spec))
        self._names = tuple([one.name for one in self.all])
        self._of_spec = tuple([one.sign for one in self.all if one.of_spec])
        self._others = tuple([one.sign for one in self.all if not one.of_spec])
        # By position: the plugins of which the key of what is put together has their concern alone.
        self._apart = tuple([at for at, one in enumerate(self.all, _HOST) if not one.merges])

    def sign(self, pod: Pod, nodes: NodeTable) -> tuple[dict[str, Hashable], Hashable]:
        """The pod's signature by plugin, and that of all whose answers are put together."""
        # What the host itself goes by; plugins say themselves what is none of their business.
        key: list[Hashable] = [pod.priority, pod.node_name]
        try:
            key += self._signed_by_spec(pod, nodes)
            key += [sign(pod, nodes) for sign in self._others]
        except Exception:  # noqa: BLE001 (only a shortcut: asked in full, the plugin fails where it counts)
            key[_HOST:] = [self._sign_or_nothing(one, pod, nodes) for one in self.all]
        signatures = dict(zip(self._names, key[_HOST:], strict=True))
        for at in self._apart:
            key[at] = concern(key[at])
        together = tuple(key)
        if all(map(_is_hashable, (together, *[signatures[self._names[at - _HOST]] for at in self._apart]))):
            return signatures, together
        return {name: self._of_its_own(name, one, pod) for name, one in signatures.items()}, object()

    def _sign_or_nothing(self, signer: Signer, pod: Pod, nodes: NodeTable) -> Hashable:
        """The signature; of a plugin that fails, one that is equal to no other."""
        try:
            return signer.sign(pod, nodes)
        except Exception as err:  # noqa: BLE001 (see `sign`)
            self._warn(signer.name, pod, f"it raised {type(err).__name__}: {err}")
            return object()

    def _of_its_own(self, plugin: str, signature: Hashable, pod: Pod) -> Hashable:
        """One that can be hashed; in the place of one that cannot, one that is equal to no other."""
        if _is_hashable(signature):
            return signature
        self._warn(plugin, pod, f"a {type(signature).__name__} cannot be hashed, or something in it cannot")
        known = concern(signature)
        return object() if known is None else (known, object())

    def _warn(self, plugin: str, pod: Pod, reason: str) -> None:
        """Once for each plugin: it costs time, and changes no answer."""
        if plugin not in self._warned:
            self._warned.add(plugin)
            log.warning("plugin.cannot_sign", plugin=plugin, pod=pod.key, reason=reason)

    def _signed_by_spec(self, pod: Pod, nodes: NodeTable) -> tuple[Hashable, ...]:
        """Made once for all pods with the same spec, which most pods of a controller have."""
        spec = pod._read
        if spec is None or not self._by_spec_holds:
            return tuple([sign(pod, nodes) for sign in self._of_spec])
        known = spec.signed
        if known is None or known[0] is not self._mark:
            # A mark, not `self`: a spec may outlive the plugins that signed it, and would keep all they hold.
            known = spec.signed = self._mark, tuple([sign(pod, nodes) for sign in self._of_spec])
            if self._unchecked:
                self._unchecked -= 1
                self._check_by_spec(pod, nodes, known[1])
        return known[1]

    def _check_by_spec(self, pod: Pod, nodes: NodeTable, signed: tuple[Hashable, ...]) -> None:
        """Of a few specs: whether a pod that shares the spec, and nothing else, is signed the same. A class
        that goes by more would be given other pods' answers; no spec is signed once and for all then.
        """
        other = replace(
            pod,
            name="",
            namespace="",
            uid="",
            resource_version="",
            labels={},
            annotations={},
            owner=None,
            node_name="",
            nominated_node="",
            created_at_s=None,
            started_at_s=None,
        )
        for signer, signature in zip(self.all, signed, strict=False):
            if self._sign_or_nothing(signer, other, nodes) != signature:
                self._by_spec_holds = False
                self._warn(signer.name, pod, _GOES_BY_MORE)


def _is_hashable(signature: object) -> bool:
    try:
        hash(signature)
    except Exception:  # noqa: BLE001 (TypeError, or whatever a class of the plugin's own raises)
        return False
    return True


def _signers(clients: Iterable[PluginClient]) -> Iterator[Signer]:
    for client in clients:
        local = client.local
        if local is None or client.settings.scope is not None:
            continue
        if local.sign is not None or shares_by_row(client):
            yield Signer(client, local)


def versions_of(signers: Iterable[Signer]) -> tuple[Callable[[], Hashable], ...]:
    """Of the objects that those read beside the tables who judge node by node."""
    return tuple(
        signer.client.local.object_versions
        for signer in signers
        if signer.by_row
        and signer.client.local is not None
        and any(need.kind is NeedKind.OBJECT for need in signer.client.descriptor.needs)
    )
