"""`GangPolicy`: how long a group of pods may keep nodes it does not run on, and what follows a lost member.

The settings are berth's own; kube-scheduler's GangScheduling has no arguments. The defaults are what
kube-scheduler does. They come from the arguments of the plugin GangScheduling, and from annotations of a
group, which win. The plugins of groups and the host read them here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias

from berth_sdk.duration import SECOND_NS, format_seconds, parse_duration
from berth_sdk.errors import PluginArgsError
from berth_sdk.pod_group import PodGroup

GANG_SCHEDULING: Final = "GangScheduling"
"""The plugin whose arguments have the settings of a profile."""
COSCHEDULING_PLUGIN: Final = "Coscheduling"
POLICY_KEY: Final = "gangPolicy"
"""The argument of COSCHEDULING_PLUGIN in which the host puts the arguments of GANG_SCHEDULING."""
TIMEOUT_ARG: Final = "timeoutSeconds"
GRACE_ARG: Final = "graceSeconds"
REPAIR_ARG: Final = "repair"
HOLD_ROOM_ARG: Final = "holdRoom"
ARGS: Final = (TIMEOUT_ARG, GRACE_ARG, REPAIR_ARG, HOLD_ROOM_ARG)
"""The arguments, in the order in which they are documented."""
_PREFIX: Final = "gangs.berth.io/"
TIMEOUT_ANNOTATION: Final = f"{_PREFIX}timeout"
GRACE_ANNOTATION: Final = f"{_PREFIX}grace"
REPAIR_ANNOTATION: Final = f"{_PREFIX}repair"
HOLD_ROOM_ANNOTATION: Final = f"{_PREFIX}hold-room"
ANNOTATIONS: Final = (TIMEOUT_ANNOTATION, GRACE_ANNOTATION, REPAIR_ANNOTATION, HOLD_ROOM_ANNOTATION)
"""The annotations, in the order of `ARGS`."""
_BOOLEANS: Final = {"true": True, "false": False}
_NOT_NEGATIVE: Final = "must be greater than or equal to 0"
_POSITIVE: Final = "must be greater than 0"

ArgProblem: TypeAlias = tuple[str, object, str]
"""An argument that is refused: its name, its value, and why."""


def judge_of(group: PodGroup) -> str:
    """Return the plugin that judges groups of this kind."""
    return COSCHEDULING_PLUGIN if group.is_coscheduling else GANG_SCHEDULING


class Repair(StrEnum):
    """The repair of a group that had its minimum, lost members, and has fewer now.

    `LEAVE`: nothing. `REFILL`: the group holds room for the replacements of the lost members. `EVICT`: as
    `REFILL`; if the group is still below its minimum after the grace, its other members are evicted.
    """

    LEAVE = "Leave"
    REFILL = "Refill"
    EVICT = "Evict"


REPAIRS: Final = tuple(str(repair) for repair in Repair)
"""The words of `repair`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPolicy:
    """The settings of one group, or of all groups of a profile.

    - `timeout_s`: the longest time, in seconds, for which a group keeps nodes that it does not run on: the
      wait at Permit for the other members, and the hold of room.
    - `grace_s`: how long, in seconds, a group may be below its minimum before EVICT evicts; 0: at once.
    - `repair`: what happens to a group that lost members.
    - `holds_room`: True if room is held for a group that does not fit.
    """

    timeout_s: float = 300.0
    grace_s: float = 60.0
    repair: Repair = Repair.LEAVE
    holds_room: bool = False

    @staticmethod
    def of(args: Mapping[str, Any]) -> GangPolicy:
        """Return the settings in the arguments of GangScheduling; other arguments are ignored.

        Raises PluginArgsError, which names every argument that is refused.
        """
        problems = [
            f"{name}: Invalid value: {_shown(value)}: {why}" for name, value, why in problems_of(args)
        ]
        if problems:
            raise PluginArgsError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
        given = {name: args[name] for name in ARGS if args.get(name) is not None}
        default = GangPolicy()
        return GangPolicy(
            timeout_s=float(given.get(TIMEOUT_ARG, default.timeout_s)),
            grace_s=float(given.get(GRACE_ARG, default.grace_s)),
            repair=Repair(given.get(REPAIR_ARG, default.repair)),
            holds_room=given.get(HOLD_ROOM_ARG, default.holds_room),
        )

    def for_group(self, group: PodGroup) -> tuple[GangPolicy, tuple[str, ...]]:
        """Return the settings of one group, whose annotations win, and the problems with its annotations.

        Where an annotation is refused, the setting of this policy counts.
        """
        policy, problems = self, []
        for name, text in sorted(group.annotations.items()):
            if not name.startswith(_PREFIX):
                continue
            if name not in ANNOTATIONS:
                problems.append(f"annotation {name}: berth has no such setting: use {', '.join(ANNOTATIONS)}")
                continue
            try:
                policy = policy._with_annotation(name, text)
            except ValueError as err:
                problems.append(f'annotation {name}: "{text}": {err}; {policy._counts_instead(name)}')
        return policy, tuple(problems)

    def _with_annotation(self, name: str, text: str) -> GangPolicy:
        """Return these settings with one annotation. Raises ValueError with what to write."""
        if name == TIMEOUT_ANNOTATION:
            timeout_s = parse_duration(text) / SECOND_NS
            if timeout_s <= 0:
                raise ValueError(_POSITIVE)
            return replace(self, timeout_s=timeout_s)
        if name == GRACE_ANNOTATION:
            grace_s = parse_duration(text) / SECOND_NS
            if grace_s < 0:
                raise ValueError(_NOT_NEGATIVE)
            return replace(self, grace_s=grace_s)
        if name == REPAIR_ANNOTATION:
            if text not in REPAIRS:
                raise ValueError(_one_of(REPAIRS))
            return replace(self, repair=Repair(text))
        if text not in _BOOLEANS:
            raise ValueError(_one_of(tuple(_BOOLEANS)))
        return replace(self, holds_room=_BOOLEANS[text])

    def _counts_instead(self, name: str) -> str:
        """Return which setting counts where the annotation is refused."""
        counts = {
            TIMEOUT_ANNOTATION: format_seconds(self.timeout_s),
            GRACE_ANNOTATION: format_seconds(self.grace_s),
            REPAIR_ANNOTATION: str(self.repair),
            HOLD_ROOM_ANNOTATION: str(self.holds_room).lower(),
        }
        return f"{counts[name]} of the configuration counts"


def problems_of(args: Mapping[str, Any]) -> Iterator[ArgProblem]:
    """Yield the arguments of GangScheduling that are refused. None counts as absent."""
    for name in ARGS:
        value = args.get(name)
        if value is not None and (why := _why_refused(name, value)):
            yield name, value, why


def _why_refused(name: str, value: object) -> str:
    """Return why an argument is refused; "" if it is accepted.

    A whole float counts as an integer: arguments that came over the wire have no integers.
    """
    if name == REPAIR_ARG:
        return "" if value in REPAIRS else _one_of(REPAIRS)
    if name == HOLD_ROOM_ARG:
        return "" if isinstance(value, bool) else _one_of(tuple(_BOOLEANS))
    if isinstance(value, bool) or not isinstance(value, int | float) or not float(value).is_integer():
        return "must be an integer, in seconds"
    if name == TIMEOUT_ARG:
        return "" if value > 0 else _POSITIVE
    return "" if value >= 0 else _NOT_NEGATIVE


def _one_of(words: tuple[str, ...]) -> str:
    return f"must be one of {', '.join(words)}"


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
