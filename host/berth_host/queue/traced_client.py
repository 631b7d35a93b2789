"""`TracedClient`: the client of a plugin for the queue, with a span for each traced call.

`app` hands it to `wiring` if tracing is on. A call that an in-process plugin answers at once takes
microseconds: such a call has a span only if its pod names a parent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from berth_sdk.events import ClusterEvent
from berth_sdk.pod import Pod
from berth_sdk.results import QueuedPod
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.status import Code, Status
from berth_sdk.wire.traces import TRACEPARENT

from berth_host.queue.plugin_calls import QueueClient
from berth_host.rpc.call import AnyCall
from berth_host.rpc.calls import PRE_ENQUEUE, QUEUEING_HINTS, SORT_KEYS
from berth_host.rpc.hint_answer import NO_HINT, HintAnswer
from berth_host.tracing.live_spans import LiveSpans, QueueCall

T = TypeVar("T")
_COUNTED: Final = {PRE_ENQUEUE: "pods.rejected", SORT_KEYS: "pods.without_key", QUEUEING_HINTS: "pods.helped"}
"""The attribute that has the number of answers that count, by call."""


class TracedClient:
    """The client of one plugin, with a span around each call of the queue. Implements `QueueClient`."""

    def __init__(self, client: QueueClient, spans: LiveSpans) -> None:
        self._client = client
        self._spans = spans

    @property
    def name(self) -> str:
        """The plugin's name in the profile."""
        return self._client.name

    @property
    def is_served(self) -> bool:
        """True for a served plugin."""
        return self._client.is_served

    @property
    def is_scoped(self) -> bool:
        """True if the plugin is called about some pods only."""
        return self._client.is_scoped

    @property
    def descriptor(self) -> Descriptor:
        """The declarations of the plugin's active instance."""
        return self._client.descriptor

    def in_scope(self, pod: Pod) -> bool:
        """Return True if the plugin is called about this pod."""
        return self._client.in_scope(pod)

    async def pre_enqueue(self, pods: Sequence[QueuedPod]) -> list[Status]:
        """Return one status per pod."""
        with self._span(PRE_ENQUEUE, [queued.pod for queued in pods]) as span:
            return self._told(span, PRE_ENQUEUE, await self._client.pre_enqueue(pods))

    def pre_enqueue_at_once(self, pod: QueuedPod) -> Status | None:
        """Return what `pre_enqueue` would, for one pod; None where the answer has to be awaited."""
        ask = self._client.pre_enqueue_at_once
        return self._at_once(PRE_ENQUEUE, pod.pod, lambda: ask(pod))

    async def sort_keys(self, pods: Sequence[QueuedPod]) -> list[bytes]:
        """Return one key per pod."""
        with self._span(SORT_KEYS, [queued.pod for queued in pods]) as span:
            return self._told(span, SORT_KEYS, await self._client.sort_keys(pods))

    def sort_key_at_once(self, pod: QueuedPod) -> bytes | None:
        """Return what `sort_keys` would, for one pod; None where the answer has to be awaited."""
        ask = self._client.sort_key_at_once
        return self._at_once(SORT_KEYS, pod.pod, lambda: ask(pod))

    async def queueing_hints(self, event: ClusterEvent, pods: Sequence[Pod]) -> list[HintAnswer]:
        """Return one hint per pod."""
        with self._span(QUEUEING_HINTS, pods, event) as span:
            return self._told(span, QUEUEING_HINTS, await self._client.queueing_hints(event, pods))

    def queueing_hint_at_once(self, event: ClusterEvent, pod: Pod) -> HintAnswer | None:
        """Return what `queueing_hints` would, for one pod; None where the answer has to be awaited."""
        ask = self._client.queueing_hint_at_once
        return self._at_once(QUEUEING_HINTS, pod, lambda: ask(event, pod), event)

    def _at_once(self, call: AnyCall, pod: Pod, ask: Callable[[], T], event: ClusterEvent | None = None) -> T:
        if self.is_served or TRACEPARENT not in pod.annotations:
            return ask()
        with self._span(call, [pod], event) as span:
            answer = ask()
            if answer is not None:
                self._told(span, call, [answer])
            return answer  # None: the call is still to be made, and awaited

    def _span(self, call: AnyCall, pods: Sequence[Pod], event: ClusterEvent | None = None) -> Any:
        said = "" if event is None else f"{event.resource}/{event.action}"
        return self._spans.queue_call(self.name, call.rpc, pods, said)

    def _told(self, span: QueueCall | None, call: AnyCall, answers: list[T]) -> list[T]:
        """Return the answers; record the number of those that count, and whether one failed."""
        if span is not None:
            # A served plugin may take no part, or be away: then no request was made.
            span.is_asked = span.is_asked or not self.is_served
            count = sum(_counts(answer) for answer in answers)
            failed = any(map(_failed, answers))
            span.answered(_COUNTED[call], count, failed=failed)
        return answers


def _failed(answer: object) -> bool:
    return answer.code is Code.ERROR if isinstance(answer, Status) else answer is NO_HINT


def _counts(answer: object) -> bool:
    """Return True for a rejection, for a pod without a key, and for a hint that the event helps."""
    return not answer.is_success if isinstance(answer, Status) else answer in (True, b"", NO_HINT)
