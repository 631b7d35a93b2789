"""The descriptors of one plugin in several profiles -> the descriptor that holds for all of them.

Each profile has an instance with arguments of its own, which may declare other needs. The host has one
descriptor for all of them. Source: the contract's identity.proto (ConfigureResponse.plugins).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from berth_sdk.errors import PluginArgsError
from berth_sdk.events import ANY_RESOURCE, EventInterest
from berth_sdk.extension_points import DependsOn
from berth_sdk.kept.follows import BY_ROW
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.scope import Scope

T = TypeVar("T")
_ANY: Final = tuple(EventInterest(resource) for resource in ANY_RESOURCE)
"""The events of a plugin that declares none."""


def for_all_profiles(by_profile: Mapping[str, Descriptor]) -> Descriptor:
    """Return the descriptor that is true of every profile's instance: everything that one of them needs.

    `by_profile`: at least one. Raises PluginArgsError where the instances contradict each other.
    """
    descriptors = list(by_profile.values())
    first = descriptors[0]
    if all(one == first for one in descriptors):
        return first
    for attribute in ("node_mode", "normalization"):
        values = {profile: getattr(one, attribute).name for profile, one in by_profile.items()}
        if len(set(values.values())) > 1:
            said = ", ".join(f"{value} in profile {profile}" for profile, value in values.items())
            raise PluginArgsError(
                f"{first.name} declares {attribute} {said}, and it must be the same in all profiles: give"
                " the profiles arguments that agree in it, or serve a second plugin under another name"
            )
    depends_on = _weakest([one.depends_on for one in descriptors])
    reads = [one.reads for one in descriptors if one.reads is not None]
    by_row = depends_on in (DependsOn.NODE, DependsOn.ROW) and len(reads) == len(descriptors)
    fields = [one.sign_fields for one in descriptors if one.sign_fields is not None]
    return replace(
        first,
        needs=_union(one.needs for one in descriptors),
        pod_sensitivity=max((one.pod_sensitivity for one in descriptors), key=lambda one: one.value),
        reads_shared=_union(one.reads_shared for one in descriptors),
        events=_events(by_profile),
        depends_on=depends_on,
        reads=frozenset().union(*reads) if by_row else None,
        signs_queue=all(one.signs_queue for one in descriptors),
        sign_fields=_union(fields) if depends_on and len(fields) == len(descriptors) else None,
        host_keeps_answers=depends_on in BY_ROW and all(one.host_keeps_answers for one in descriptors),
        scope=_scope([one.scope for one in descriptors]),
    )


def _events(by_profile: Mapping[str, Descriptor]) -> tuple[EventInterest, ...] | None:
    """Return the events that the profiles' pods wait for. An event that not all wait for names its profiles.

    None: any event, in every profile.
    """
    if all(one.events is None for one in by_profile.values()):
        return None
    waiting: dict[EventInterest, list[str]] = {}
    for profile, one in by_profile.items():
        for interest in dict.fromkeys(_ANY if one.events is None else one.events):
            if not interest.profiles or profile in interest.profiles:
                waiting.setdefault(replace(interest, profiles=()), []).append(profile)
    return tuple(
        interest if len(profiles) == len(by_profile) else replace(interest, profiles=tuple(profiles))
        for interest, profiles in waiting.items()
    )


def _scope(scopes: Sequence[tuple[Scope, ...] | None]) -> tuple[Scope, ...] | None:
    """Return the terms of all profiles; None if every pod of one of them is inside."""
    known = [scope for scope in scopes if scope is not None]
    return _union(known) if len(known) == len(scopes) else None


def _union(lists: Iterable[Sequence[T]]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(one for each in lists for one in each))


def _weakest(declared: Sequence[DependsOn | None]) -> DependsOn | None:
    """Return what all answers depend on at most; None if one of the instances does not declare it."""
    found = set(declared)
    if None in found:
        return None
    for one in (DependsOn.OTHER, DependsOn.TABLE):
        if one in found:
            return one
    if found == {DependsOn.NODE, DependsOn.NODES}:
        return DependsOn.NODES
    if found == {DependsOn.NODE, DependsOn.ROW}:
        return DependsOn.ROW
    return found.pop() if len(found) == 1 else DependsOn.TABLE
