"""`PluginProcess`: a process that serves plugins in a life: the SDK's instance and calls, without threads.

Each call is done on the loop, after a drawn delay, and its answer leaves after another one, as those of
threads would. The process may die, stand still for a while, answer very late, and answer what the contract
forbids.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Final

import grpc
from berth_host.rpc.served.grpc_errors import rpc_error
from berth_sdk.serve.framed_requests import AbortedError, reply_to
from berth_sdk.serve.instance import Instance
from berth_sdk.serve.optional_services import SCHEDULING
from berth_sdk.serve.services import Services
from berth_sdk.wire.frames import NUMBERS, Frame
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from berth_bench.life.link import FramedEnd, ServerCall
from berth_bench.life.virtual_loop import VirtualLoop

_REPLIES: Final = {method.name: GetMessageClass(method.output_type) for method in SCHEDULING.methods}
_SPOILT: Final = frozenset({*NUMBERS, "PreBind", "PreBindPreFlight"})
"""The calls whose answers may be spoilt: those of a cycle. Each spoilt answer is a violation, and no yes."""


@dataclass(slots=True, kw_only=True)
class Habits:
    """How a process answers.

    `work_s`: the longest time before a call is done, and again before its answer leaves. `late`: the share of
    answers that leave up to `late_s` seconds later still. `spoils`: the share of answers to calls of a cycle
    that the contract forbids.
    """

    work_s: float = 0.0
    late: float = 0.0
    late_s: float = 0.0
    spoils: float = 0.0


class PluginProcess:
    """A process. serving -die-> dead; serving -stand_still-> silent -go_on-> serving."""

    def __init__(
        self,
        classes: Mapping[str, type],
        loop: VirtualLoop,
        habits: Habits,
        chance: random.Random,
        note: Callable[[str], None],
    ) -> None:
        """`note`: called with each call that is done, and with each answer that is spoilt."""
        self.habits = habits
        self.instance = Instance(classes)
        self.instance.framed = True
        self._loop = loop
        self._chance = chance
        self._note = note
        self._is_dead = self._stands_still = False
        self._held: list[Callable[[], None]] = []
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._count = 0
        self._context = copy_context()
        services = Services(self.instance)
        self._handlers = {
            f"/{service}/{name}": handler
            for service, handlers in services.handlers.items()
            for name, handler in handlers.items()
        }
        self._names = {number: name for name, number in NUMBERS.items()}
        self._framed = {
            number: self._perhaps_spoilt(self._names[number], answer)
            for number, answer in services.framed.items()
        }

    # --- life -------------------------------------------------------------------------------------------

    def die(self) -> None:
        """End at once: no call is done and no answer leaves any more."""
        self._is_dead = True
        self._held.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def stand_still(self) -> None:
        """Do nothing until `go_on`."""
        self._stands_still = True

    def go_on(self) -> None:
        """Do what has come meanwhile, in its order."""
        self._stands_still = False
        held, self._held = self._held, []
        for work in held:
            self._later(work)

    # --- calls ------------------------------------------------------------------------------------------

    def take(self, call: ServerCall) -> None:
        """Do a unary call after a while, and answer it."""

        def work() -> None:
            self._note(call.path.rpartition("/")[2])
            what = self._answer_to(call)
            self._later(lambda: call.answer(what), self._lateness_s())

        self._later(work)

    def take_frame(self, request: Frame, stream: FramedEnd) -> None:
        """Do a call in a frame after a while, and answer it."""

        def work() -> None:
            # A host that has closed does not wait for a call whose turn has not come.
            if stream.is_active():
                self._note(f"framed {self._names.get(request.call)}")
                reply = reply_to(self._framed, request, stream)
                self._later(lambda: stream.answer(reply), self._lateness_s())

        self._later(work)

    def _answer_to(self, call: ServerCall) -> bytes | grpc.aio.AioRpcError:
        handler: Any = self._handlers[call.path]
        try:
            if handler.stream_unary is not None:
                return bytes(handler.stream_unary(self._messages(handler, call), call))
            answer = self._perhaps_spoilt(call.path.rpartition("/")[2], self._unary(handler))
            return answer(call.raw[0], call)
        except AbortedError as err:
            return rpc_error(err.code, err.text)
        except Exception as err:  # noqa: BLE001  # as gRPC's server
            return rpc_error(grpc.StatusCode.UNKNOWN, f"Exception calling application: {err}")

    def _unary(self, handler: Any) -> Callable[[bytes, Any], bytes]:
        def answer(raw: bytes, context: Any) -> bytes:
            try:
                request = handler.request_deserializer(raw)
            except DecodeError as err:
                raise AbortedError(grpc.StatusCode.INTERNAL, "Exception deserializing request!") from err
            return bytes(handler.unary_unary(request, context))

        return answer

    def _messages(self, handler: Any, call: ServerCall) -> Iterator[Any]:
        for raw in call.raw:
            yield handler.request_deserializer(raw)
        if not call.is_whole:
            raise grpc.RpcError

    def _perhaps_spoilt(
        self, name: str, answer: Callable[[bytes, Any], bytes]
    ) -> Callable[[bytes, Any], bytes]:
        def answered(raw: bytes, context: Any) -> bytes:
            honest = answer(raw, context)
            if name not in _SPOILT or self._chance.random() >= self.habits.spoils:
                return honest
            self._note(f"spoils {name}")
            return spoilt(name, honest, self._chance)

        return answered

    # --- time -------------------------------------------------------------------------------------------

    def _lateness_s(self) -> float:
        habits = self.habits
        return self._chance.uniform(0.0, habits.late_s) if self._chance.random() < habits.late else 0.0

    def _later(self, work: Callable[[], None], more_s: float = 0.0) -> None:
        if self._is_dead:
            return
        self._count += 1
        number = self._count
        delay_s = self._chance.uniform(0.0, self.habits.work_s) + more_s
        # Whichever host asked, the work goes on while that host is paused.
        self._timers[number] = self._loop.call_later(
            delay_s, self._begin, number, work, context=self._context
        )

    def _begin(self, number: int, work: Callable[[], None]) -> None:
        del self._timers[number]
        if self._stands_still:
            self._held.append(work)
        else:
            work()


def spoilt(name: str, honest: bytes, chance: random.Random) -> bytes:
    """Return an answer to a call of a cycle that the contract forbids, made of an honest one."""
    kind = chance.choice(("cut", "garbage", "cycle", "status", "scores", "node"))
    if kind == "garbage" or not honest:
        return b"\xff\xff\xff"
    if kind == "cut":
        return honest[:-1]
    reply: Any = _REPLIES[name].FromString(honest)
    if kind == "status" and name in ("Reserve", "PreBind") and not reply.ctx.missing:
        reply.ctx.ClearField("status")
    elif kind == "scores" and name in ("Filter", "Score"):
        scores = reply.early_scores if name == "Filter" else reply.scores
        scores.dense.extend([1_000_000])
        scores.small = b"\x01"
    elif kind == "node" and name == "Filter":
        group = reply.verdicts.rejected.add()
        group.status.code = 2
        group.nodes.names.append("no-such-node")
    else:
        reply.ctx.cycle_id = f"not {reply.ctx.cycle_id}"
    return bytes(reply.SerializeToString())
