"""The plugin's side of IdentityService, StateService and QueueService.

SchedulingService has a module of its own (`scheduling_servicer`). Each method runs on a thread of the
gRPC server.
"""

# ruff: noqa: N802  (the methods have the contract's names)

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, TypeVar

import grpc

from berth_sdk.errors import ObjectError
from berth_sdk.plugin.v1 import identity_pb2, queue_pb2, state_pb2
from berth_sdk.plugin.v1.identity_pb2_grpc import IdentityServiceServicer
from berth_sdk.plugin.v1.queue_pb2_grpc import QueueServiceServicer
from berth_sdk.plugin.v1.state_pb2_grpc import StateServiceServicer
from berth_sdk.results import QueuedPod
from berth_sdk.serve.calls import LOG, CallRefusedError, ask
from berth_sdk.serve.instance import Instance
from berth_sdk.serve.reservations import ReservationCalls, whole_list
from berth_sdk.serve.served import ServedPlugin
from berth_sdk.wire import records as wire
from berth_sdk.wire.requests import decode_event, decode_queued_pod
from berth_sdk.wire.status import encode_status

M = TypeVar("M", state_pb2.SyncStateRequest, state_pb2.ReconcileRequest)
_Ask: TypeAlias = Callable[[ServedPlugin, QueuedPod], Any]


class IdentityServicer(IdentityServiceServicer):
    """The calls about an attachment: its begin, its health and its end."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    def Handshake(
        self, request: identity_pb2.HandshakeRequest, context: grpc.ServicerContext
    ) -> identity_pb2.HandshakeResponse:
        """Return what this process is and serves."""
        return self.instance.handshake(request)

    def Configure(
        self, request: identity_pb2.ConfigureRequest, context: grpc.ServicerContext
    ) -> identity_pb2.ConfigureResponse:
        """Make the plugins that the host configures, and return the warnings or the error."""
        return self.instance.configure(request)

    def Probe(
        self, request: identity_pb2.ProbeRequest, context: grpc.ServicerContext
    ) -> identity_pb2.ProbeResponse:
        """Return whether this process is ready: it is, after Configure."""
        self.instance.admit_probe(request.attachment_id)
        ready = self.instance.is_ready
        return identity_pb2.ProbeResponse(
            ready=ready,
            message="" if ready else "waiting for Configure",
            instance_id=self.instance.instance_id,
            in_flight=self.instance.in_flight.count - 1,
        )

    def Drain(
        self, request: identity_pb2.DrainRequest, context: grpc.ServicerContext
    ) -> identity_pb2.DrainResponse:
        """Log that the host will send no new cycles, and return the number of open cycles."""
        self.instance.admit(request.attachment_id)
        LOG.info("the host drains this instance: %s", request.reason)
        return identity_pb2.DrainResponse(open_cycles=len(self.instance.cycles))


class StateServicer(StateServiceServicer):
    """State that is too large for a call, and the list of live reservations."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._reservations = ReservationCalls(instance)

    def SyncState(
        self, request_iterator: Iterable[state_pb2.SyncStateRequest], context: grpc.ServicerContext
    ) -> state_pb2.SyncStateResponse:
        """Apply a stream of chunks to the copy, as a whole, at the chunk with `last`."""
        return self.instance.copy.synchronise(self._admitted(request_iterator))

    def Reconcile(
        self, request_iterator: Iterable[state_pb2.ReconcileRequest], context: grpc.ServicerContext
    ) -> state_pb2.ReconcileResponse:
        """Undo the reservations that no page lists."""
        return self._reservations.reconcile(whole_list(self._admitted(request_iterator)), context)

    def _admitted(self, messages: Iterable[M]) -> Iterator[M]:
        """Yield the messages of a stream. Raises CallRefusedError if the stream breaks off."""
        try:
            for message in messages:
                self.instance.admit(message.attachment_id)
                yield message
        except grpc.RpcError as err:
            raise CallRefusedError(grpc.StatusCode.CANCELLED, "the stream broke off") from err


class QueueServicer(QueueServiceServicer):
    """The calls about the queue: may a pod enter, the order of pods, and does an event help a pod."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    def PreEnqueue(
        self, request: queue_pb2.PreEnqueueRequest, context: grpc.ServicerContext
    ) -> queue_pb2.PreEnqueueResponse:
        """Return one status per pod."""
        self.instance.admit(request.attachment_id)
        self._bring_copy(request)
        statuses = self._ask_each(
            request, context, "pre_enqueue", lambda served, pod: served.runtime.pre_enqueue(pod)
        )
        return queue_pb2.PreEnqueueResponse(statuses=[encode_status(status) for status in statuses])

    def SortKeys(
        self, request: queue_pb2.SortKeysRequest, context: grpc.ServicerContext
    ) -> queue_pb2.SortKeysResponse:
        """Return one sort key per pod."""
        self.instance.admit(request.attachment_id)
        keys = self._ask_each(request, context, "sort_key", lambda served, pod: served.runtime.sort_key(pod))
        return queue_pb2.SortKeysResponse(keys=keys)

    def QueueingHints(
        self, request: queue_pb2.QueueingHintsRequest, context: grpc.ServicerContext
    ) -> queue_pb2.QueueingHintsResponse:
        """Return one hint per pod. A plugin's error counts as "may help", so that no pod waits in vain.

        Raises CallRefusedError for a plugin that is not configured: no hint of it can be an error.
        """
        self.instance.admit(request.attachment_id)
        self.instance.profiles_of(request.plugin)
        self._bring_copy(request)
        try:
            event = decode_event(request.event)
        except ObjectError as err:
            raise CallRefusedError(
                grpc.StatusCode.INVALID_ARGUMENT, f"the event cannot be read: {err}"
            ) from err
        hints: list[bool] = []
        errors: list[int] = []
        for place, pod in enumerate(map(decode_queued_pod, request.pods)):
            try:
                hints.append(
                    self._ask(
                        (request.plugin, "queueing_hint"),
                        context,
                        pod,
                        lambda served, pod: served.runtime.queueing_hint(event, pod.pod),
                    )
                )
            except CallRefusedError:
                hints.append(True)
                errors.append(place)
        return queue_pb2.QueueingHintsResponse(queue=hints, errors=errors)

    def _ask_each(self, request: Any, context: grpc.ServicerContext, method: str, call: _Ask) -> list[Any]:
        pods = map(decode_queued_pod, request.pods)
        return [self._ask((request.plugin, method), context, pod, call) for pod in pods]

    def _ask(self, asked: tuple[str, str], context: grpc.ServicerContext, pod: QueuedPod, call: _Ask) -> Any:
        """Call a method for one pod, of the plugin in the pod's profile. `asked`: plugin and method."""
        plugin, method = asked
        served = self._of_profile(plugin, pod)
        with served.turn(method, context):
            return ask(served, method, self.instance.loop, context, lambda: call(served, pod))

    def _of_profile(self, plugin: str, pod: QueuedPod) -> ServedPlugin:
        profiles = self.instance.profiles_of(plugin)
        return profiles.get(pod.pod.scheduler_name) or next(iter(profiles.values()))

    def _bring_copy(self, request: Any) -> None:
        if not request.HasField("version"):
            return
        version = wire.decode_version(request.version)
        have = self.instance.copy.bring_to(request.delta if request.HasField("delta") else None)
        # Another call may have brought a newer version meanwhile, which answers the question as well.
        if have is None or have.epoch != version.epoch or have.generation < version.generation:
            raise CallRefusedError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the copy is at {_text(have)} and the delta does not bring it to {_text(version)}",
            )


def _text(version: tuple[int, int] | None) -> str:
    return "nothing" if version is None else f"{version[0]}/{version[1]}"
