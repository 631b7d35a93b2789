"""What pods are the same to whom: the signatures of one cycle's pod, made anew for every cycle.

A plugin in the host that signs, or judges node by node, takes part (`Signer`). Called by `recall`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final, TypeAlias

from berth_sdk.extension_points import DependsOn, ExtensionPoint, NoConcern, ScoreNormalization
from berth_sdk.needs import NeedKind
from berth_sdk.pod import Pod
from berth_sdk.signature import wishes
from berth_sdk.tables import NodeTable

from berth_host.rpc.client import PluginClient

Sign: TypeAlias = Callable[[Pod, NodeTable], Hashable]
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


def concern(signature: Hashable) -> NoConcern | None:
    """What the signature says is none of the plugin's business."""
    if type(signature) is NoConcern:
        return signature
    if type(signature) is tuple and len(signature) == 2 and type(signature[0]) is NoConcern:
        return signature[0]
    return None


class Signer:
    """One plugin. `by_row`: it judges node by node. `merges`: its answers are put together with those of
    others; those of one that does not sign would keep them from being shared.
    """

    __slots__ = ("by_row", "client", "merges", "name", "sign")

    def __init__(self, client: PluginClient, own: Sign | None, *, by_row: bool) -> None:
        self.client = client
        self.name = client.name
        self.sign: Sign = own or _all_wishes
        self.by_row = by_row
        self.merges = by_row and own is not None


def _all_wishes(pod: Pod, nodes: NodeTable) -> Hashable:
    return wishes(pod)


def sign_all(signers: Iterable[Signer], pod: Pod, nodes: NodeTable) -> tuple[dict[str, Hashable], Hashable]:
    """The pod's signature by plugin, and that of all whose answers are put together."""
    signatures: dict[str, Hashable] = {}
    # What the host itself goes by; others say what is none of their business.
    key: list[Hashable] = [pod.priority, pod.node_name]
    for signer in signers:
        try:
            signature = signer.sign(pod, nodes)
        except Exception:  # noqa: BLE001 (only a shortcut: asked in full, the plugin fails where it counts)
            signature = object()  # equal to no other one
        signatures[signer.name] = signature
        key.append(signature if signer.merges else concern(signature))
    try:
        hash(together := tuple(key))
    except TypeError:
        return {name: one if _is_hashable(one) else object() for name, one in signatures.items()}, object()
    return signatures, together


def _is_hashable(signature: object) -> bool:
    try:
        hash(signature)
    except TypeError:
        return False
    return True


def signers(clients: Iterable[PluginClient]) -> tuple[Signer, ...]:
    """Those whose answers can be recalled at all."""
    found = []
    for client in clients:
        if client.local is None or client.settings.scope is not None:
            continue
        by_row = shares_by_row(client)
        if by_row or client.local.sign is not None:
            found.append(Signer(client, client.local.sign, by_row=by_row))
    return tuple(found)


def versions_of(signers: Iterable[Signer]) -> tuple[Callable[[], Hashable], ...]:
    """Of the objects that those read beside the tables who judge node by node."""
    return tuple(
        signer.client.local.object_versions
        for signer in signers
        if signer.by_row
        and signer.client.local is not None
        and any(need.kind is NeedKind.OBJECT for need in signer.client.descriptor.state_needs)
    )
