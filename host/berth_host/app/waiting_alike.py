"""Which questions about an event are one and the same to a plugin elsewhere: by the fields that it signs.

Used by `questions`. A plugin that lists no fields is asked about each pod.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from berth_sdk.events import ClusterEvent
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import PodField, signing

from berth_host.queue.seams import HintQuestion
from berth_host.rpc.client import PluginClient


class WaitingAlike:
    """Of one plugin, by what its instance of the moment says of itself."""

    def __init__(self, client: PluginClient) -> None:
        self._client: Final = client
        self._fields: tuple[PodField, ...] | None = None
        self._sign: Callable[[Pod], Hashable] = _as_itself

    def kind_of(self, question: HintQuestion) -> Hashable:
        """Equal for questions that have one answer."""
        if _is_about(question.event, question.pod):
            return id(question)
        fields = self._client.descriptor.sign_fields
        if fields != self._fields:
            self._fields = fields
            self._sign = _as_itself if fields is None else signing(fields)
        if fields is None:
            return id(question)
        return id(question.event), self._sign(question.pod)


def _as_itself(pod: Pod) -> Hashable:
    return pod.uid


def _is_about(event: ClusterEvent, pod: Pod) -> bool:
    subject = event.new or event.old
    return isinstance(subject, Pod) and subject.uid == pod.uid
