"""`MemberKinds`: the members of a queued group by what decides an event's effect on them.

One member is judged for all of its kind, so that a gang of thousands costs an event no more than one of ten.
Made when the group is judged first; `QueuedGroupInfo` tells it of each member that changes.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import NamedTuple

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
    signed: tuple[Hashable, ...]


class MemberKinds:
    """The kinds of the members of one group. `profiles`: the plugins that sign pods."""

    def __init__(self, profiles: Mapping[str, QueueProfile]) -> None:
        self._profiles = profiles
        self._kind_of: dict[str, _Kind] = {}
        self._members: dict[_Kind, dict[str, QueuedPodInfo]] = {}

    def put(self, info: QueuedPodInfo) -> None:
        """Add a member, or find its kind again after a change."""
        uid, kind = info.uid, self._of(info)
        if self._kind_of.get(uid) != kind:
            self.remove(uid)
            self._kind_of[uid] = kind
        self._members.setdefault(kind, {})[uid] = info

    def remove(self, uid: str) -> None:
        """Remove a member, if it is here."""
        kind = self._kind_of.pop(uid, None)
        if kind is not None:
            members = self._members[kind]
            del members[uid]
            if not members:
                del self._members[kind]

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
        return _Kind(name, rejected_by, pending_on, info.gating_plugin, self._signed(info))

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
