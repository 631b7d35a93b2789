"""Which questions about an event are one and the same to a plugin elsewhere: by the fields that it signs.

Used by `questions`. A plugin that lists no fields is asked about each pod.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from berth_sdk.events import ClusterEvent
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import PodField, signing

from berth_host.queue.seams import HintQuestion


class WaitingAlike:
    """Of one plugin. `fields`: those that its instance of the moment signs; None: it does not say."""

    def __init__(self, fields: Callable[[], tuple[PodField, ...] | None]) -> None:
        self._fields = fields
        self._known: tuple[PodField, ...] = ()
        self._sign = signing(())

    def kind_of(self, question: HintQuestion) -> Hashable:
        """Equal for questions that have one answer."""
        fields = self._fields()
        if fields is None or _is_about(question.event, question.pod):
            return id(question)
        if fields != self._known:
            self._known, self._sign = fields, signing(fields)
        return id(question.event), self._sign(question.pod)


def _is_about(event: ClusterEvent, pod: Pod) -> bool:
    subject = event.new or event.old
    return isinstance(subject, Pod) and subject.uid == pod.uid
