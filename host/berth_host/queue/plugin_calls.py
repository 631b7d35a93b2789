"""The queue's questions to plugins: gates (PreEnqueue), hints (QueueingHint) and sort keys (QueueSort).

The queue calls plain functions, which `PluginQuestions` makes. An in-process plugin answers at once. For a
served plugin the function returns DEFERRED: the questions of one turn of the loop become one call, and the
queue gets the answers through its `..._answered` methods. Hints of in-process plugins are deferred too, once
they have taken long in one turn: an event may be of interest to many pods with long lists.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from berth_sdk.clocks import thread_s
from berth_sdk.events import ClusterEvent
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import PodField, signing
from berth_sdk.results import QueuedPod
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.status import SUCCESS, Code, Status

from berth_host.errors.state import InvariantError
from berth_host.log import get_logger
from berth_host.model.clock import Clock, Timer
from berth_host.queue.interfaces import (
    DEFERRED,
    Deferred,
    GateQuestion,
    HintAsker,
    HintQuestion,
    SortKeyQuestion,
)
from berth_host.rpc.hint_answer import HintAnswer

Q = TypeVar("Q")
A = TypeVar("A")
log = get_logger()
RETRY_S = 1.0
TURN_S = 0.05
"""CPU seconds after which the hints of in-process plugins wait for the next turn of the loop."""
MAX_BATCH = 256


class QueueClient(Protocol):
    """The calls of the queue to one plugin (`rpc.client.PluginClient`)."""

    @property
    def name(self) -> str:
        """The plugin's name in the profile."""
        ...

    @property
    def is_served(self) -> bool:
        """True for a served plugin."""
        ...

    @property
    def is_scoped(self) -> bool:
        """True if the plugin is called about some pods only."""
        ...

    @property
    def descriptor(self) -> Descriptor:
        """The declarations of the plugin's active instance."""
        ...

    def in_scope(self, pod: Pod) -> bool:
        """Return True if the plugin is called about this pod."""
        ...

    async def pre_enqueue(self, pods: Sequence[QueuedPod]) -> list[Status]:
        """Return one status per pod."""
        ...

    def pre_enqueue_at_once(self, pod: QueuedPod) -> Status | None:
        """Return what `pre_enqueue` would, for one pod; None where the answer has to be awaited."""
        ...

    async def sort_keys(self, pods: Sequence[QueuedPod]) -> list[bytes]:
        """Return one key per pod; empty: the fallback order."""
        ...

    def sort_key_at_once(self, pod: QueuedPod) -> bytes | None:
        """Return what `sort_keys` would, for one pod; None where the answer has to be awaited."""
        ...

    async def queueing_hints(self, event: ClusterEvent, pods: Sequence[Pod]) -> list[HintAnswer]:
        """Return one hint per pod."""
        ...

    def queueing_hint_at_once(self, event: ClusterEvent, pod: Pod) -> HintAnswer | None:
        """Return what `queueing_hints` would, for one pod; None where the answer has to be awaited."""
        ...


class Batcher(Generic[Q, A]):
    """A batch of questions: those of one turn of the event loop become one call.

    `ask`: calls the plugin for a batch. `answered`: takes one answer. `busy`: the running tasks. `kind_of`:
    returns equal values for questions with the same answer, of which only one is asked.
    """

    def __init__(
        self,
        ask: Callable[[Sequence[Q]], Awaitable[Sequence[A]]],
        answered: Callable[[Q, A], None],
        busy: set[asyncio.Future[None]],
        kind_of: Callable[[Q], Hashable] = id,
    ) -> None:
        self._ask = ask
        self._answered = answered
        self._busy = busy
        self._kind_of = kind_of
        self._waiting: dict[Hashable, list[Q]] = {}

    def put(self, question: Q) -> Deferred:
        """Ask this question together with the others of this turn of the loop."""
        return self._put(question, self._kind_of(question))

    def put_alone(self, question: Q) -> Deferred:
        """Ask this question together with the others, without looking for others of its kind: a pod with long
        lists takes as long to compare as to judge.
        """
        return self._put(question, id(question))

    def _put(self, question: Q, kind: Hashable) -> Deferred:
        is_first = not self._waiting
        self._waiting.setdefault(kind, []).append(question)
        if is_first:
            self._start(self._run())
        return DEFERRED

    def bring(self, question: Q, answer: A) -> Deferred:
        """Deliver a known answer in a later turn of the loop."""

        async def hand_over() -> None:
            self._hand_over(question, answer)

        self._start(hand_over())
        return DEFERRED

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)

    async def _run(self) -> None:
        await asyncio.sleep(0)
        while self._waiting:
            batch = [self._waiting.pop(kind) for kind in list(islice(self._waiting, MAX_BATCH))]
            try:
                answers = await self._ask([same[0] for same in batch])
            except Exception as err:  # noqa: BLE001  # A plugin's errors are answers: this is one of the host.
                # Nobody asks these again, and their pods would wait for ever: the next host asks anew.
                broken = InvariantError(f"a call with {len(batch)} questions of the queue failed: {err!r}")
                told = {"message": "questions of the queue stay without an answer", "exception": broken}
                asyncio.get_running_loop().call_exception_handler(told)
                continue
            for same, answer in zip(batch, answers, strict=True):
                for question in same:
                    self._hand_over(question, answer)

    def _hand_over(self, question: Q, answer: A) -> None:
        try:
            self._answered(question, answer)
        except Exception as err:  # noqa: BLE001  # The loop reports the error; other answers must still arrive.
            told = {"message": "an answer of a plugin could not be taken", "exception": err}
            asyncio.get_running_loop().call_exception_handler(told)


class WaitingAlike:
    """The questions of one served plugin that have the same answer: those whose pods are equal in the fields
    that the plugin signs.

    `fields`: returns the fields that the plugin's instance signs; None if the instance lists none: then no
    two questions are alike.
    """

    def __init__(self, fields: Callable[[], tuple[PodField, ...] | None]) -> None:
        self._fields = fields
        self._known: tuple[PodField, ...] = ()
        self._sign = signing(())

    def kind_of(self, question: HintQuestion) -> Hashable:
        """Return a value that is equal for questions with the same answer."""
        fields = self._fields()
        if fields is None or _is_about(question.event, question.pod):
            return id(question)
        if fields != self._known:
            self._known, self._sign = fields, signing(fields)
        return id(question.event), self._sign(question.pod)


def _is_about(event: ClusterEvent, pod: Pod) -> bool:
    subject = event.new or event.old
    return isinstance(subject, Pod) and subject.uid == pod.uid


class Turn:
    """The CPU time of one turn of the event loop, from its first hint on. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float] = thread_s) -> None:
        self._clock = clock
        self._ends_s: float | None = None

    def is_over(self) -> bool:
        """Return True if hints and what lies between them have taken TURN_S in this turn."""
        if self._ends_s is None:
            asyncio.get_running_loop().call_soon(self._end)
            self._ends_s = self._clock() + TURN_S
            return False
        return self._clock() > self._ends_s

    def _end(self) -> None:
        self._ends_s = None


class AnswerSink:
    """The receiver of late answers; `QueueWiring.connect` sets its functions after the queue was made."""

    gate: Callable[[GateQuestion, Status], bool]
    """Returns True if the question is still open."""
    hint: Callable[[HintQuestion, HintAnswer], None]
    sort_key: Callable[[SortKeyQuestion, bytes], None]


class PluginQuestions:
    """The functions through which the queue calls plugins. `busy`: the running calls.

    `refresh`: updates the snapshot, at the end of the cycle that holds it. A served plugin that reads objects
    must see the event for which the queue calls it.
    """

    def __init__(
        self,
        clock: Clock,
        sink: AnswerSink,
        busy: set[asyncio.Future[None]],
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        self._refresh = refresh
        self._turn = Turn()
        self._clock = clock
        self._sink = sink
        self._busy = busy
        self._retries: dict[int, Timer] = {}
        self._numbers = itertools.count()
        self._is_stopped = False

    @property
    def retry_count(self) -> int:
        """The number of gate questions that wait for a retry."""
        return len(self._retries)

    def stop(self) -> None:
        """Ask no question again, now and after later errors."""
        self._is_stopped = True
        for timer in self._retries.values():
            timer.cancel()
        self._retries.clear()

    def gate(self, client: QueueClient) -> Callable[[GateQuestion], Status | Deferred]:
        """Return the function that calls one plugin's PreEnqueue."""

        async def ask_all(batch: Sequence[GateQuestion]) -> Sequence[Status]:
            await self._see_objects(client)
            return await client.pre_enqueue([question.pod for question in batch])

        batcher = Batcher[GateQuestion, Status](
            ask_all,
            lambda question, status: self._gate_answered(batcher, question, status),
            self._busy,
        )

        in_scope = client.in_scope if client.is_served or client.is_scoped else None

        def ask(question: GateQuestion) -> Status | Deferred:
            if in_scope is not None and not in_scope(question.pod.pod):
                return SUCCESS
            status = client.pre_enqueue_at_once(question.pod)
            if status is None:
                return batcher.put(question)
            # An error is not the plugin's answer: the queue keeps the question open, and gets the error
            # later, as from a batch.
            return batcher.bring(question, status) if status.code is Code.ERROR else status

        return ask

    async def _see_objects(self, client: QueueClient) -> None:
        if client.is_served and any(need.resource for need in client.descriptor.needs):
            await self._refresh()

    def _gate_answered(
        self, batcher: Batcher[GateQuestion, Status], question: GateQuestion, status: Status
    ) -> None:
        is_open = self._sink.gate(question, status)
        if is_open and status.code is Code.ERROR and not self._is_stopped:
            # Policy Fail: the pod stays gated until the plugin answers. A question that a newer one about the
            # pod has replaced is not asked again: such questions would add up.
            when_s = self._clock.monotonic_s() + RETRY_S

            def ask_again() -> None:
                del self._retries[number]
                batcher.put(question)

            number = next(self._numbers)
            self._retries[number] = self._clock.call_at(when_s, ask_again)

    def hint(self, clients: Mapping[str, QueueClient]) -> HintAsker:
        """Return the function that calls the hints of a profile's plugins.

        For a plugin that this build does not have, and for one that is not called about the pod any more, the
        function returns True: the event may help.
        """
        batchers = {name: self._hint_batcher(client) for name, client in clients.items()}

        def ask(question: HintQuestion) -> HintAnswer | Deferred:
            client = clients.get(question.plugin)
            if client is None:
                return True
            if client.is_scoped and not client.in_scope(question.pod):
                # The plugin rejected the pod before it left the plugin's scope, and no longer keeps it away.
                return True
            if not client.is_served and self._turn.is_over():
                return batchers[question.plugin].put_alone(question)
            answer = client.queueing_hint_at_once(question.event, question.pod)
            return batchers[question.plugin].put(question) if answer is None else answer

        return ask

    def _hint_batcher(self, client: QueueClient) -> Batcher[HintQuestion, HintAnswer]:
        async def ask(batch: Sequence[HintQuestion]) -> Sequence[HintAnswer]:
            await self._see_objects(client)
            # One call per event, as the questions of one turn mostly share their event.
            answers: dict[int, HintAnswer] = {}
            events = {id(question.event): question.event for question in batch}
            for key, event in events.items():
                asked = [question for question in batch if id(question.event) == key]
                replies = await client.queueing_hints(event, [question.pod for question in asked])
                for question, reply in zip(asked, replies, strict=True):
                    answers[id(question)] = reply
            return [answers[id(question)] for question in batch]

        def answered(question: HintQuestion, answer: HintAnswer) -> None:
            self._sink.hint(question, answer)  # read late, as the queue is made after its functions

        alike = WaitingAlike(lambda: client.descriptor.sign_fields)
        return Batcher(ask, answered, self._busy, alike.kind_of)

    def sort_key(self, client: QueueClient) -> Callable[[SortKeyQuestion], bytes | Deferred]:
        """Return the function that requests a QueueSort key; an empty key means the fallback order."""
        batcher = Batcher[SortKeyQuestion, bytes](
            lambda batch: client.sort_keys([question.pod for question in batch]),
            lambda question, key: self._key_answered(batcher, question, key),
            self._busy,
        )

        def ask(question: SortKeyQuestion) -> bytes | Deferred:
            key = client.sort_key_at_once(question.pod)
            return batcher.put(question) if key is None else key

        return ask

    def _key_answered(
        self, batcher: Batcher[SortKeyQuestion, bytes], question: SortKeyQuestion, key: bytes
    ) -> None:
        self._sink.sort_key(question, key)
