"""`Call`: one row of the table of calls. `Lane`: which calls may run at the same time.

The rows are in `calls`: what each call sends, what it gets, and how its answer is checked. The relay, both
transports and the checks follow the row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar, TypeVarTuple

from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.status import Code

from berth_host.config.berth.points import POINT_RULES, PointRules

Args = TypeVarTuple("Args")
Raw = TypeVar("Raw")
Out = TypeVar("Out")


class Lane(Enum):
    """The kinds of calls by what may run at the same time."""

    QUEUE = "queue"
    """A batch, outside any cycle."""
    CYCLE = "cycle"
    """The scheduling cycle: one call at a time, and plain methods run on the loop."""
    BINDING = "binding"
    """The binding cycle: calls of several pods at a time. Plain methods run in threads; an instance gets no
    more calls at once than it allows."""
    OUTBOX = "outbox"
    """Calls that the plugin must get: the outbox keeps each until the instance has acknowledged it."""


def keys_of(point: ExtensionPoint) -> tuple[str, ...]:
    """Return the keys of the call that is named after its point: those of the point, and of the point that it
    is a part of.
    """
    above = point.part_of
    return (point.config_name,) if above is None else (point.config_name, above.config_name)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Call(Generic[*Args, Raw, Out]):
    """One RPC: `Call[*arguments, the raw answer of a transport, the checked answer]`.

    Made by the functions of `calls`, which check the types of the columns against each other.
    """

    rpc: str
    point: ExtensionPoint
    keys: tuple[str, ...]
    """The points whose deadline and policy apply to the call. The first one that the operator has set counts;
    the defaults are those of the first."""
    lane: Lane = Lane.CYCLE
    pure: bool = False
    """True if the call is repeated once when the plugin is unavailable."""
    budgeted: bool = False
    """True if the time of a served plugin counts against the cycle's budget."""
    in_rounds: bool = False
    """True if the call may be made several times. One deadline covers all rounds."""
    after_outbox: bool = False
    """True if the call waits until the instance has acknowledged all messages of the outbox about the pod."""
    stateless: bool = False
    """True if the answers of a batch depend only on the pods."""
    codes: frozenset[Code] = frozenset()
    """The codes that have a meaning as the status of this call."""

    local: Callable[..., Any]
    """In process: (runtime, cycle state, pod, *arguments) -> the raw answer, or something to await."""
    each: Callable[..., Iterable[tuple[Any, ...]]] | None = None
    """For a batch: (*arguments) -> its questions, one for each answer. `local` and `check_one` are then about
    one question: (runtime, *question) -> the raw answer; the answer."""
    check_one: Callable[..., Any] | None = None
    """For a batch: (checker, this call, raw answer) -> the answer to one question. Raises
    PluginProtocolError."""
    sends: tuple[str, ...] = ()
    """Served: the names of the arguments, by which the request is written."""
    answer: Any = None
    """Served: the class of the raw answer: a record of the SDK, list (one for each pod of a batch), Verdicts
    (one for each scenario), or ndarray (one score for each node)."""
    unset: Code | None = Code.SUCCESS
    """Served: the code of a reply without a code. None: the reply must have a code."""
    full: frozenset[Code] | None = None
    """Served: the codes with which more than the status of a reply is read. None: all codes."""
    join: Callable[[Sequence[Raw]], Raw] | None = None
    """Served: the raw answers to the parts of a split request -> the raw answer to the whole request."""
    check: Callable[..., Out]
    """(checker, this call, cycle, raw answer, *arguments) -> the answer. Raises PluginProtocolError."""

    @property
    def rules(self) -> PointRules:
        """The default deadline, the maximum deadline, and the default policy."""
        return POINT_RULES[self.keys[0]]

    @property
    def default_deadline_s(self) -> float:
        """The deadline in seconds if the configuration sets none."""
        return self.rules.deadline_ms / 1000

    @property
    def method_name(self) -> str:
        """The name of the method of a plugin's class that answers the call (`pre_bind`)."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.rpc).lower()


AnyCall: TypeAlias = Call[*tuple[Any, ...], Any, Any]
"""A row, where the types of its columns do not matter."""
