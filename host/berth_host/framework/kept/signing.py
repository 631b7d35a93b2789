"""Signatures of a cycle's pod: for which plugins is the pod equal to earlier pods? Made again in every cycle.

`Signer`s are the plugins that sign, or that judge row by row. The host itself signs for served plugins, by
the fields that they declare. Called by `keep_answers`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from berth_sdk.extension_points import ExtensionPoint, ScoreNormalization
from berth_sdk.kept.follows import BY_ROW, Follows, Sign, concern
from berth_sdk.pod import Pod
from berth_sdk.runtime.raised import raised_text
from berth_sdk.signature import wishes
from berth_sdk.tables import NodeTable

from berth_host.log import get_logger
from berth_host.rpc.client import PluginClient

log = get_logger()

_CHECKED_SPECS: Final = 16
_GOES_BY_MORE: Final = "its sign_spec differs for another pod with the very same spec: write it as sign"
_MOST_SPECS: Final = 4096
_UNDECIDED: Final = object()
"""In place of the signature of a plugin that signs each pod of a spec."""
_BEFORE_OTHERS: Final = 3
"""The number of entries of a key before the signatures, which are made in every cycle."""
_KEPT_POINTS: Final = frozenset(
    {
        ExtensionPoint.PRE_ENQUEUE,
        ExtensionPoint.QUEUE_SORT,
        ExtensionPoint.PRE_FILTER,
        ExtensionPoint.FILTER,
        ExtensionPoint.PRE_SCORE,
        ExtensionPoint.SCORE,
        # These get states of a group and of its placements, not that of a pod.
        ExtensionPoint.PLACEMENT_GENERATE,
        ExtensionPoint.PLACEMENT_SCORE,
        ExtensionPoint.NORMALIZE_PLACEMENT_SCORE,
        ExtensionPoint.PLACEMENT_FEASIBLE,
        ExtensionPoint.POD_GROUP_POST_FILTER,
    }
)
OF_PODS: Final = frozenset(
    {ExtensionPoint.PRE_FILTER, ExtensionPoint.FILTER, ExtensionPoint.PRE_SCORE, ExtensionPoint.SCORE}
)
"""The points whose answers are kept by pod and row."""


def keeps_by_row(client: PluginClient) -> bool:
    """Return True if the host may keep the plugin's answers to PreFilter, Filter, PreScore and Score.

    Such a plugin judges row by row and has no later point that needs the cycle's state. An in-process plugin
    is also asked about every pod; a served plugin lets the host keep its answers.
    """
    descriptor = client.descriptor
    return (
        client.follows is not None
        and (client.is_served or not client.is_scoped)
        and descriptor.depends_on in BY_ROW
        and descriptor.normalization is not ScoreNormalization.RPC
        and not descriptor.reads_shared
        and _KEPT_POINTS.issuperset(descriptor.points)
        and not OF_PODS.isdisjoint(descriptor.points)
    )


class Signer:
    """One plugin that signs. `by_row`: it judges row by row. `merges`: its answers are merged with those of
    other plugins; a plugin without a signature of its own would prevent the others from sharing. `sign_spec`:
    returns the signature that the pod's spec decides; None: no spec decides it. `sign_rest`: signs the pods
    whose spec does not decide; None: every spec does. `keeps`: it declares `depends_on`, so its answers may
    be kept; otherwise its signature only says at which points of this cycle the plugin has no concern.
    """

    __slots__ = ("by_row", "client", "follows", "keeps", "merges", "name", "sign", "sign_rest", "sign_spec")

    def __init__(self, client: PluginClient, follows: Follows) -> None:
        self.client = client
        self.follows = follows
        self.name = client.name
        sign: Sign = follows.sign or _all_wishes
        # Pods outside the scope are pods of another kind: the plugin is not asked about them.
        self.sign = _in_scope(client.in_scope, sign) if client.is_scoped else sign
        self.by_row = keeps_by_row(client)
        self.keeps = follows.depends_on is not None
        of_spec = self.keeps and not client.is_scoped
        self.sign_spec = follows.sign_spec if of_spec else None
        self.sign_rest = self.sign if self.sign_spec is None else follows.sign_rest
        self.merges = self.by_row and follows.sign is not None


def _all_wishes(pod: Pod, nodes: NodeTable) -> Hashable:
    return wishes(pod)


def _in_scope(is_in_scope: Callable[[Pod], bool], sign: Sign) -> Sign:
    def sign_in_scope(pod: Pod, nodes: NodeTable) -> Hashable:
        return (True, sign(pod, nodes)) if is_in_scope(pod) else False

    return sign_in_scope


class _Same:
    """Stands for the spec signatures of all plugins that merge: compared by identity, however long they
    are.
    """

    __slots__ = ()


class _Rest(NamedTuple):
    """The plugins that sign each pod of a spec, in the order in which they are asked. `apart`: the positions
    in the key of those of which the merged key holds only their concern.
    """

    names: tuple[str, ...]
    signs: tuple[Sign, ...]
    apart: tuple[int, ...]


class _SignedSpec(NamedTuple):
    """The signatures of one spec. `by_name`: by plugin. `same`: equal for two specs that are equal for all
    plugins that merge, and have the same `rest`.
    """

    by_name: dict[str, Hashable]
    same: Hashable
    rest: _Rest


class Signers:
    """The plugins of a profile whose answers can be kept, and the signatures of a cycle's pod."""

    def __init__(self, clients: Iterable[PluginClient]) -> None:
        self._warned: set[str] = set()
        self._mark: Final = object()
        self._unchecked = _CHECKED_SPECS
        self._by_spec_holds = True
        self.all: Final = tuple(_signers(clients))
        self._of_spec = tuple([one for one in self.all if one.sign_spec is not None])
        self._rests: dict[frozenset[str], _Rest] = {}
        """The plugins that sign each pod, by the names of those whose signature the spec decides."""
        self._same: dict[Hashable, _Same] = {}

    def sign(self, pod: Pod, nodes: NodeTable) -> tuple[dict[str, Hashable], Hashable]:
        """Return the pod's signature by plugin, and the joint signature of the plugins whose answers are
        merged.
        """
        try:
            by_name, same, (names, signs, apart) = self._signed_by_spec(pod)
            others = [sign(pod, nodes) for sign in signs]
            hash(tuple(others))
        except Exception:  # noqa: BLE001 (only a shortcut: the plugin fails again in the full call)
            return {
                one.name: self._of_its_own(one.name, self._sign_or_nothing(one, pod, nodes), pod)
                for one in self.all
            }, object()
        signatures = by_name.copy()
        signatures.update(zip(names, others, strict=True))
        # The host's own criteria come first; plugins say themselves which points do not concern them.
        key: list[Hashable] = [pod.priority, pod.node_name, same, *others]
        for at in apart:
            key[at] = concern(key[at])
        return signatures, tuple(key)

    def _sign_or_nothing(self, signer: Signer, pod: Pod, nodes: NodeTable) -> Hashable:
        """Return the signature; if the plugin fails, a signature that equals no other."""
        try:
            return signer.sign(pod, nodes)
        except Exception as err:  # noqa: BLE001 (see `sign`)
            self._warn(signer.name, pod, f"it raised {raised_text(err)}")
            return object()

    def _of_its_own(self, plugin: str, signature: Hashable, pod: Pod) -> Hashable:
        """Return the signature; if it cannot be hashed, a signature that equals no other."""
        if _is_hashable(signature):
            return signature
        self._warn(plugin, pod, f"a {type(signature).__name__} cannot be hashed, or something in it cannot")
        known = concern(signature)
        return object() if known is None else (known, object())

    def _warn(self, plugin: str, pod: Pod, reason: str) -> None:
        """Log once per plugin. A failure costs time, and changes no answer."""
        if plugin not in self._warned:
            self._warned.add(plugin)
            log.warning("plugin.cannot_sign", plugin=plugin, pod=pod.key, reason=reason)

    def _signed_by_spec(self, pod: Pod) -> _SignedSpec:
        """Return the signatures of the pod's spec, made once for all pods with that spec.

        Raises what a plugin raises, and TypeError for a signature that cannot be hashed.
        """
        spec = pod.shared_spec
        if spec is None or not self._by_spec_holds:
            return self._sign_spec(pod)
        known = spec.signed
        if known is None or known[0] is not self._mark:
            # A mark, not `self`: a spec may outlive the plugins that signed it, and would keep all they hold.
            signed = self._sign_spec(pod)
            same = self._same.get(signed.same)
            if same is None:
                same = self._same[signed.same] = _Same()
                if len(self._same) > _MOST_SPECS:
                    del self._same[next(iter(self._same))]
            known = spec.signed = self._mark, signed._replace(same=same)
            if self._unchecked:
                self._unchecked -= 1
                self._check_by_spec(pod, signed.by_name)
        kept: _SignedSpec = known[1]
        return kept

    def _sign_spec(self, pod: Pod) -> _SignedSpec:
        by_name: dict[str, Hashable] = {}
        together: list[Hashable] = []
        for one in self._of_spec:
            signature = None if one.sign_spec is None else one.sign_spec(pod)
            if signature is None and one.sign_rest is not None:
                together.append(_UNDECIDED)
            else:
                by_name[one.name] = signature
                together.append(signature if one.merges else concern(signature))
        hash(tuple(by_name.values()))
        return _SignedSpec(by_name, tuple(together), self._rest_beside(frozenset(by_name)))

    def _rest_beside(self, decided: frozenset[str]) -> _Rest:
        """Return the plugins that sign each pod of a spec that decides the signatures of `decided`."""
        rest = self._rests.get(decided)
        if rest is None:
            ones = [one for one in self.all if one.name not in decided]
            rest = self._rests[decided] = _Rest(
                tuple([one.name for one in ones]),
                tuple([one.sign_rest or one.sign for one in ones]),
                tuple([at for at, one in enumerate(ones, _BEFORE_OTHERS) if not one.merges]),
            )
        return rest

    def _check_by_spec(self, pod: Pod, signed: Mapping[str, Hashable]) -> None:
        """Check, for a few specs, that a pod with the same spec and nothing else in common gets the same
        signature.

        A class that reads more than the spec would get other pods' answers; then no signature is kept by
        spec.
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
        for one in self._of_spec:
            try:
                again = None if one.sign_spec is None else one.sign_spec(other)
            except Exception as err:  # noqa: BLE001 (see `sign`)
                self._warn(one.name, pod, f"it raised {raised_text(err)}")
                again = object()
            # None stands for a spec that does not decide as well.
            if again != signed.get(one.name):
                self._by_spec_holds = False
                self._warn(one.name, pod, _GOES_BY_MORE)


def _is_hashable(signature: object) -> bool:
    try:
        hash(signature)
    except Exception:  # noqa: BLE001 (TypeError, or an error of the plugin's own class)
        return False
    return True


def _signers(clients: Iterable[PluginClient]) -> Iterator[Signer]:
    for client in clients:
        follows = client.follows
        if follows is None or (client.is_scoped and not client.is_served):
            continue
        by_row = keeps_by_row(client)
        if by_row or (follows.sign is not None and not client.is_served):
            yield Signer(client, follows)
