"""`UnschedulablePool`: the unschedulable pods and groups, gated ones included, by their rejecting plugins.

For an event only the pods rejected by plugins that registered for it are judged; all other pods cost nothing.
A plugin may narrow them further, to the pods that wait for certain keys (`NarrowingPlugin`).
One pod is judged for all that are alike: rejected and gated by the same plugins, with equal signatures for
these (`QueueSigningPlugin`). A group is alike to no other entity. Owned by `places`.
Source: kube-scheduler `backend/queue/unschedulable_entities.go`, v1.37; for the keys, KEP-6132.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from berth_sdk.pod import Pod

from berth_host.queue.interfaces import QueueProfile
from berth_host.queue.queued_group import QueuedGroupInfo
from berth_host.queue.queued_pod import QueuedEntity, QueuedPodInfo
from berth_host.queue.registrations import Registration

_NOBODY: Final = ""  # The index entry of pods without a rejecting plugin.
_NO_KEYS: Final[Mapping[Hashable, Any]] = MappingProxyType({})
_UNKEYED: Final = object()  # The key of pods whose keys the plugin does not know.

_Of = tuple[str, str]
"""(schedulerName, plugin)."""
Wanted = Collection[Hashable] | Callable[[Any], bool]
"""Keys, or a function that returns True for a key."""


@dataclass(frozen=True, slots=True)
class Interest:
    """The waiting pods that an event may help, by the plugins that rejected them.

    `plugins`: all pods that one of these rejected. `keys`: by (schedulerName, plugin), only the pods that
    wait for one of the keys, and those whose keys are unknown; with no keys none of them. `subjects`: the
    pods that the event is about; they are judged whatever the keys are.
    """

    plugins: Collection[str]
    keys: Mapping[_Of, Wanted] = field(default_factory=dict)
    subjects: Collection[Pod] = ()


class _Likeness(NamedTuple):
    """The values, other than the pod's identity, that decide an event's effect on a waiting pod.

    For a group: `signed` is the group's own, `rejected_by` are the plugins of all members, with _NOBODY if a
    member has none.
    """

    profile: str
    signed: tuple[Hashable, ...]
    rejected_by: frozenset[str]
    pending_on: frozenset[str]
    gating_plugin: str
    gating_events: int
    victims_pending: bool


class Alike:
    """At least one waiting pod, and those with the same likeness; or one group.

    Their rejecting plugins and gates do not change while they are here.
    """

    __slots__ = ("_infos",)

    def __init__(self) -> None:
        self._infos: dict[str, QueuedEntity] = {}

    @property
    def first(self) -> QueuedEntity:
        """The pod that is judged for all, or the group."""
        return next(iter(self._infos.values()))

    @property
    def infos(self) -> Collection[QueuedEntity]:
        """A live view of all these pods, or of the group."""
        return self._infos.values()

    def pods(self) -> list[QueuedPodInfo]:
        """Return all these pods, or the members of the group."""
        return [pod for info in self._infos.values() for pod in info.pods()]

    @property
    def is_gated(self) -> bool:
        """True if a PreEnqueue plugin gates the pods."""
        return self.first.is_gated

    @property
    def gating_plugin_events(self) -> tuple[Registration, ...]:
        """The registrations of the plugin that gates the pods."""
        return self.first.gating_plugin_events

    def has(self, pod: Pod) -> bool:
        """Return True if this pod is here, and not as a member of a group."""
        info = self._infos.get(pod.key)
        return info is not None and info.uid == pod.uid

    def put(self, info: QueuedEntity) -> None:
        """Add a pod or the group."""
        self._infos[info.key] = info

    def drop(self, key: str) -> bool:
        """Remove a pod or the group; return True if none is left."""
        del self._infos[key]
        return not self._infos


class UnschedulablePool:
    """The unschedulable pods and groups by key, in the order of their arrival.

    `evicting`: uids of pods whose victims are being evicted; call `renew` when that changes for a pod.
    `profiles`: the plugins that sign pods.
    """

    def __init__(
        self, evicting: Container[str] = (), profiles: Mapping[str, QueueProfile] = MappingProxyType({})
    ) -> None:
        self._evicting = evicting
        self._profiles = profiles
        self._infos: dict[str, QueuedEntity] = {}
        self._key_of: dict[str, str] = {}
        self._place_of: dict[str, int] = {}
        self._places = itertools.count()
        self._likeness: dict[str, _Likeness] = {}
        self._alike: dict[_Likeness, Alike] = {}
        self._by_plugin: dict[str, dict[_Likeness, Alike]] = {}
        self._by_key: dict[_Of, dict[Hashable, dict[_Likeness, Alike]]] = {}
        self._keys: dict[_Likeness, tuple[tuple[_Of, Hashable], ...]] = {}
        """The entries of `_by_key` that name these pods."""
        self._groups: dict[str, dict[_Likeness, Alike]] = {}
        """By plugin: the groups that more than the keys of their members decides about."""

    def __len__(self) -> int:
        return len(self._infos)

    def __contains__(self, key: str) -> bool:
        return key in self._infos

    def __iter__(self) -> Iterator[QueuedEntity]:
        return iter(self._infos.values())

    def blamed(self) -> Counter[tuple[str, str]]:
        """Return the number of pods by (plugin that rejected or gates them, profile)."""
        found: Counter[tuple[str, str]] = Counter()
        for likeness, alike in self._alike.items():
            if isinstance(alike.first, QueuedPodInfo):
                for plugin in likeness.rejected_by | likeness.pending_on:
                    found[plugin, likeness.profile] += len(alike.infos)
            else:
                for info in alike.pods():
                    found.update((plugin, info.pod.scheduler_name) for plugin in info.rejecting)
        return found

    def get(self, key: str) -> QueuedEntity | None:
        """Return the pod called `namespace/name`, or the group with this key; None if it is not here."""
        return self._infos.get(key)

    def put(self, info: QueuedEntity) -> None:
        """Add a pod or group; call again after it, its members or their rejecting plugins changed."""
        key = info.key
        self.remove(key)
        self._infos[key] = info
        self._key_of[info.uid] = key
        self._place_of[key] = next(self._places)
        self._class(info)

    def remove(self, key: str) -> QueuedEntity | None:
        """Remove and return a pod or group; None if it is not here."""
        info = self._infos.pop(key, None)
        if info is not None:
            del self._place_of[key]
            if self._key_of.get(info.uid) == key:
                del self._key_of[info.uid]
            self._declass(key)
        return info

    def renew(self, uids: Iterable[str]) -> None:
        """Classify these pods again, after the eviction of their victims began or ended."""
        for uid in uids:
            key = self._key_of.get(uid)
            if key is not None:
                self._declass(key)
                self._class(self._infos[key])

    def rejected_by(self, plugins: Iterable[str]) -> list[Alike]:
        """Return the pods that one of `plugins` rejected, and those without a rejecting plugin."""
        return self.concerned(Interest(tuple(plugins)))

    def concerned(self, interest: Interest) -> list[Alike]:
        """Return the pods that `interest` names, and those without a rejecting plugin, which any event may
        help. A pod that several plugins rejected is returned once.
        """
        by_plugin = self._by_plugin
        kinds = [by_plugin[plugin] for plugin in (_NOBODY, *interest.plugins) if plugin in by_plugin]
        for of, wanted in interest.keys.items():
            plugin = of[1]
            if plugin not in by_plugin:
                continue
            kinds += _wanted(self._by_key.get(of, _NO_KEYS), wanted)
            if plugin in self._groups:
                kinds.append(self._groups[plugin])
            kinds += [self._about(pod, plugin) for pod in interest.subjects]
        if len(kinds) == 1:
            return list(kinds[0].values())
        return list({id(alike): alike for kind in kinds for alike in kind.values()}.values())

    def _about(self, pod: Pod, plugin: str) -> dict[_Likeness, Alike]:
        """Return the pods that are alike to this one, or all groups for a member, of those that `plugin`
        rejected.
        """
        found = self._by_plugin[plugin]
        if pod.group_key:
            return {likeness: alike for likeness, alike in found.items() if alike.first.is_group}
        likeness = self._likeness.get(pod.key)
        return {likeness: found[likeness]} if likeness in found else {}

    def place_of(self, info: QueuedEntity) -> int:
        """Return a number that sorts the entities by their arrival."""
        return self._place_of[info.key]

    def _class(self, info: QueuedEntity) -> None:
        likeness = (
            self._likeness_of(info)
            if isinstance(info, QueuedPodInfo)
            else _likeness_of_group(info, self._judged(info))
        )
        self._likeness[info.key] = likeness
        alike = self._alike.get(likeness)
        if alike is None:
            alike = self._alike[likeness] = Alike()
            for plugin in _indexed(likeness):
                self._by_plugin.setdefault(plugin, {})[likeness] = alike
            alike.put(info)
            self._index_keys(info, likeness, alike)
            return
        alike.put(info)

    def _index_keys(self, info: QueuedEntity, likeness: _Likeness, alike: Alike) -> None:
        pods = self._judged(info)
        if info.is_group and (info.is_gated or not all(pod.is_rejected for pod in pods)):
            for plugin in likeness.rejected_by:
                self._groups.setdefault(plugin, {})[likeness] = alike
        keys = tuple(dict.fromkeys(key for pod in pods for key in self._keys_of(pod)))
        if keys:
            self._keys[likeness] = keys
        for of, key in keys:
            self._by_key.setdefault(of, {}).setdefault(key, {})[likeness] = alike

    def _judged(self, info: QueuedEntity) -> Sequence[QueuedPodInfo]:
        """Return the pod, or one member of each kind of a group."""
        if isinstance(info, QueuedGroupInfo):
            return list(info.kinds(self._profiles).one_of_each())
        return info.pods()

    def _keys_of(self, info: QueuedPodInfo) -> Iterator[tuple[_Of, Hashable]]:
        """Yield what the plugins that rejected the pod say that it waits for."""
        name = info.pod.scheduler_name
        profile = self._profiles.get(name)
        if profile is None or not profile.narrows:
            return
        for plugin in info.rejecting:
            narrows = profile.narrows.get(plugin)
            if narrows is None:
                continue
            try:
                keys = narrows.keys_of(info.pod)
                found = [(_UNKEYED,)] if keys is None else [(key,) for key in keys]
                hash(tuple(found))
            except Exception:  # noqa: BLE001 (the pod is judged for every event that helps a pod)
                found = [(_UNKEYED,)]
            for (key,) in found:
                yield (name, plugin), key

    def _likeness_of(self, info: QueuedPodInfo) -> _Likeness:
        rejected_by, pending_on = frozenset(info.unschedulable_plugins), frozenset(info.pending_plugins)
        return _Likeness(
            info.pod.scheduler_name,
            self._signed(info, rejected_by | pending_on | {info.gating_plugin}),
            rejected_by,
            pending_on,
            info.gating_plugin,
            id(info.gating_plugin_events) if info.gating_plugin else 0,
            info.uid in self._evicting,
        )

    def _signed(self, info: QueuedPodInfo, plugins: Iterable[str]) -> tuple[Hashable, ...]:
        profile = self._profiles.get(info.pod.scheduler_name)
        if profile is None:
            return (info.uid,)
        signs = profile.signs
        try:
            # A plugin without a signature is called for each pod anyway.
            signed = tuple([signs[name](info.pod) for name in sorted(plugins) if name in signs])
            hash(signed)
        except Exception:  # noqa: BLE001 (without a signature the pod is judged by itself)
            return (info.uid,)
        return signed

    def _declass(self, key: str) -> None:
        likeness = self._likeness.pop(key)
        if not self._alike[likeness].drop(key):
            return
        del self._alike[likeness]
        for plugin in _indexed(likeness):
            _drop(self._by_plugin, plugin, likeness)
            _drop(self._groups, plugin, likeness)
        for of, awaited in self._keys.pop(likeness, ()):
            _drop(self._by_key[of], awaited, likeness)
            if not self._by_key[of]:
                del self._by_key[of]


def _likeness_of_group(group: QueuedEntity, judged: Iterable[QueuedPodInfo]) -> _Likeness:
    rejected_by = {plugin for info in judged for plugin in info.rejecting or (_NOBODY,)}
    return _Likeness(
        "", (group.uid,), frozenset(rejected_by), frozenset(), group.gating_plugin, 0, victims_pending=False
    )


def _wanted(
    by_key: Mapping[Hashable, dict[_Likeness, Alike]], wanted: Wanted
) -> list[dict[_Likeness, Alike]]:
    """Return the pods by the keys that are wanted, with those whose keys are unknown if any key is."""
    if callable(wanted):
        return [kind for key, kind in by_key.items() if key is _UNKEYED or wanted(key)]
    return [by_key[key] for key in (*wanted, _UNKEYED) if key in by_key] if wanted else []


K = TypeVar("K", bound=Hashable)


def _drop(index: dict[K, dict[_Likeness, Alike]], key: K, likeness: _Likeness) -> None:
    found = index.get(key)
    if found is not None and found.pop(likeness, None) is not None and not found:
        del index[key]


def _indexed(likeness: _Likeness) -> Iterable[str]:
    return (likeness.rejected_by | likeness.pending_on) or (_NOBODY,)
