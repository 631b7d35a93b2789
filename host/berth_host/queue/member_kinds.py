"""`MemberKinds`: the members of a queued group by what decides an event's effect on them, and their gates.

One member is judged for all of its kind, so that a gang of thousands costs an event no more than one of ten.
Made when the group is judged first; `QueuedGroupInfo` tells it of each member that changes.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import NamedTuple

from berth_sdk.pod import Pod

from berth_host.queue.interfaces import QueueProfile
from berth_host.queue.queued_pod import QueuedPodInfo


class _Kind(NamedTuple):
    """The common properties of the members of a kind. `signed`: their signatures by the plugins that rejected
    them; the uid of a member where such a plugin does not sign.
    """

    profile: str
    rejected_by: frozenset[str]
    pending_on: frozenset[str]
    gating_plugin: str
    gating_message: str
    signed: tuple[Hashable, ...]


class MemberKinds:
    """The kinds of the members of one group. `profiles`: the plugins that sign pods."""

    def __init__(self, profiles: Mapping[str, QueueProfile]) -> None:
        self._profiles = profiles
        self._kind_of: dict[str, tuple[_Kind, Pod]] = {}
        """By uid: the kind, and the version of the pod that has it."""
        self._members: dict[_Kind, dict[str, QueuedPodInfo]] = {}

    def put(self, info: QueuedPodInfo) -> None:
        """Add a member, or find its kind again after a change."""
        uid, known = info.uid, self._kind_of.get(info.uid)
        if (
            known is not None
            and known[1] is info.pod
            and _is_still(known[0], info)
            and self._members[known[0]][uid] is info
        ):
            return
        kind = self._of(info)
        if known is None or known[0] != kind:
            self.remove(uid)
        self._kind_of[uid] = kind, info.pod
        self._members.setdefault(kind, {})[uid] = info

    def remove(self, uid: str) -> None:
        """Remove a member, if it is here."""
        known = self._kind_of.pop(uid, None)
        if known is not None:
            members = self._members[known[0]]
            del members[uid]
            if not members:
                del self._members[known[0]]

    def alike(self, info: QueuedPodInfo) -> Mapping[str, QueuedPodInfo]:
        """Return the members of the kind of this one, by uid; a live view."""
        return self._members[self._kind_of[info.uid][0]]

    def gated(self) -> Iterator[Mapping[str, QueuedPodInfo]]:
        """Yield the members of each kind with a closed gate, by uid; live views."""
        for kind, members in self._members.items():
            if kind.gating_plugin in kind.rejected_by:
                yield members

    def outside(self, kinds: Collection[Mapping[str, QueuedPodInfo]]) -> list[QueuedPodInfo]:
        """Return the members of no kind in `kinds` (from `gated`)."""
        left_out = {id(members) for members in kinds}
        others = [members for members in self._members.values() if id(members) not in left_out]
        return [info for members in others for info in members.values()]

    def one_of_each(self, apart: Collection[str] = ()) -> Iterator[QueuedPodInfo]:
        """Yield a member of each kind. `apart`: uids of members that are yielded and stand for nobody."""
        for members in self._members.values():
            yield from (members[uid] for uid in apart if uid in members)
            other = next((info for uid, info in members.items() if uid not in apart), None)
            if other is not None:
                yield other

    def _of(self, info: QueuedPodInfo) -> _Kind:
        rejected_by, pending_on = frozenset(info.unschedulable_plugins), frozenset(info.pending_plugins)
        name = info.pod.scheduler_name
        signed = self._signed(info)
        return _Kind(name, rejected_by, pending_on, info.gating_plugin, info.gating_message, signed)

    def _signed(self, info: QueuedPodInfo) -> tuple[Hashable, ...]:
        profile, plugins = self._profiles.get(info.pod.scheduler_name), info.rejecting
        if profile is None or not profile.signs.keys() >= plugins:
            return (info.uid,)
        signs = profile.signs
        try:
            signed = tuple([signs[name](info.pod) for name in sorted(plugins)])
            hash(signed)
        except Exception:  # noqa: BLE001  # without a signature the member is judged by itself
            return (info.uid,)
        return signed


def _is_still(kind: _Kind, info: QueuedPodInfo) -> bool:
    """Return True if a member, whose pod is the same, has its kind yet."""
    return (
        kind.gating_plugin == info.gating_plugin
        and kind.gating_message == info.gating_message
        and kind.rejected_by == info.unschedulable_plugins
        and kind.pending_on == info.pending_plugins
    )
