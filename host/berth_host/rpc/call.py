"""`Call`: one row of the table of calls, and `Lane`, the order that a call is made in.

The rows are in `calls`, which says what each call sends, gets and is checked for. Everybody else takes a
row and does what it says: the relay, both transports, the checks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, TypeVarTuple

from berth_sdk.extension_points import Answer, ExtensionPoint
from berth_sdk.status import Code

from berth_host.config.berth.points import POINT_RULES, PointRules

if TYPE_CHECKING:
    from berth_host.rpc.remote.methods import Method

Args = TypeVarTuple("Args")
Raw = TypeVar("Raw")
Out = TypeVar("Out")


class Lane(Enum):
    """Beside which others a call is made."""

    QUEUE = "queue"
    """A batch, outside of any cycle."""
    CYCLE = "cycle"
    """One at a time: plain methods run on the loop."""
    BINDING = "binding"
    """Beside those of other pods: plain methods run in threads, and so many are open at an instance."""
    OUTBOX = "outbox"
    """What a plugin has to hear of: kept until its instance has acknowledged it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Call(Generic[*Args, Raw, Out]):
    """One RPC: `Call[what it is asked with, what a transport answers, that as it was checked]`.

    Made by the functions of `calls`, which check the types of the columns against each other.
    """

    rpc: str
    point: ExtensionPoint
    keys: tuple[str, ...]
    """Under which an operator may set its deadline and policy; the first that is given counts, and the
    defaults are those of the first."""
    lane: Lane = Lane.CYCLE
    pure: bool = False
    """Repeated once if the plugin is unavailable."""
    budgeted: bool = False
    """Remote time of it counts against the cycle's budget."""
    in_rounds: bool = False
    """It may be made several times; one deadline covers all rounds."""
    after_outbox: bool = False
    """It waits until what the outbox holds about the pod is acknowledged."""
    stateless: bool = False
    """A batch whose answers depend on the pods alone."""
    codes: frozenset[Code] = frozenset()
    """The codes that have a meaning as its status."""

    local: Callable[..., Any]
    """In process: (runtime, cycle state, pod, *arguments) -> the raw answer, or something to await. Of a
    batch: (runtime, *arguments) -> one question for each answer."""
    method: Method[Any]
    """Remote: where it goes, and the message that comes back."""
    encode: Callable[..., Any]
    """Remote: (writer, cycle, *arguments) -> what is written; of a batch without the cycle."""
    decode: Callable[..., Raw]
    """Remote: (reader, reply) -> the raw answer. Raises PluginProtocolError."""
    join: Callable[[Sequence[Raw]], Raw] | None = None
    """Remote: the raw answers of the parts of a request that is too large -> the one of the whole."""
    post: Callable[..., Answer[Raw]] | None = None
    """Remote, in the outbox's lane: (outbox, the parcel that was written, seconds). There is no reply."""
    check: Callable[..., Out]
    """(checker, this call, cycle, raw answer, *arguments) -> the answer. Raises PluginProtocolError."""

    @property
    def rules(self) -> PointRules:
        """Default deadline, highest one, default policy."""
        return POINT_RULES[self.keys[0]]

    @property
    def default_deadline_s(self) -> float:
        """The deadline where nobody sets one."""
        return self.rules.deadline_ms / 1000

    @property
    def method_name(self) -> str:
        """The method of a plugin's class that answers it (`pre_bind`)."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.rpc).lower()


AnyCall: TypeAlias = Call[*tuple[Any, ...], Any, Any]
"""A row where its types do not matter."""
