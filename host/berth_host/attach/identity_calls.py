"""`IdentityCalls`: the calls of an attachment's life: Handshake, Configure, Drain.

Made by `Attachment` for each attempt. Deadlines are enforced here too, because gRPC does not enforce them for
a stopped process. Source: the contract's identity.proto.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

import grpc
from berth_sdk.clocks import monotonic_s
from berth_sdk.plugin.v1 import identity_pb2, identity_pb2_grpc
from berth_sdk.wire.call_names import metadata_of
from berth_sdk.wire.credential import CredentialError, read_credential
from google.protobuf.duration_pb2 import Duration

from berth_host.attach.child import Child
from berth_host.attach.configure import refuse
from berth_host.attach.configured_places import Place
from berth_host.attach.handshake import OFFERED, ArgumentsRefusedError, RefusedError
from berth_host.attach.peer import DialError
from berth_host.log import get_logger
from berth_host.log.hidden import hide, without_hidden
from berth_host.rpc.served.grpc_errors import in_time, readable

HANDSHAKE_S: Final = 5.0
CONFIGURE_S: Final = 10.0
_LOG = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """The host's part of the handshake. `epoch`: the epoch of the host's state."""

    host_version: str
    epoch: int
    features: Collection[str]
    credential: str = field(repr=False)


class IdentityCalls:
    """The identity calls of one attachment. `plugin`: a name for errors."""

    def __init__(self, channel: grpc.aio.Channel, place: Place, attachment_id: str, plugin: str) -> None:
        self._stub = identity_pb2_grpc.IdentityServiceStub(channel)
        self._place = place
        self._attachment_id = attachment_id
        self._metadata = metadata_of(attachment_id)
        self._plugin = plugin

    async def shake_hands(self, greeting: Greeting) -> identity_pb2.HandshakeResponse:
        """Call Handshake and return the instance's answer. Raises DialError and PluginError."""
        request = identity_pb2.HandshakeRequest(
            host_version=greeting.host_version,
            host_epoch=greeting.epoch,
            attachment_id=self._attachment_id,
            offered=[identity_pb2.ContractVersion(major=major, minor=minor) for major, minor in OFFERED],
            features=sorted(greeting.features),
            credential=greeting.credential,
        )
        try:
            reply = await in_time(
                self._stub.Handshake(request, timeout=HANDSHAKE_S, metadata=self._metadata), HANDSHAKE_S
            )
            return readable(reply, self._plugin, "Handshake")
        except grpc.aio.AioRpcError as err:
            if err.code() is grpc.StatusCode.UNAUTHENTICATED:
                told = self._place.credential_file
                raise DialError(
                    f"does not accept the credential in {told}: the plugin was told to expect another one"
                    if told
                    else "expects a credential: name the file that holds it as its credentialFile"
                ) from err
            if err.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise DialError(f"does not shake hands (no answer within {HANDSHAKE_S:g} s)") from err
            raise DialError(f"does not shake hands ({err.code().name}: {_details(err)})") from err

    async def configure(self, request: identity_pb2.ConfigureRequest) -> identity_pb2.ConfigureResponse:
        """Call Configure to accept the instance; return its answer, which has no error.

        Raises ArgumentsRefusedError, RefusedError, DialError and PluginError.
        """
        try:
            answer = await in_time(
                self._stub.Configure(request, timeout=CONFIGURE_S, metadata=self._metadata), CONFIGURE_S
            )
            reply = readable(answer, self._plugin, "Configure")
        except grpc.aio.AioRpcError as err:
            if err.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise RefusedError(f"refuses its configuration: {_details(err)}") from err
            if err.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise DialError(
                    f"did not answer Configure within {CONFIGURE_S:g} s: Configure creates the plugins, so"
                    " check what their __init__ waits for"
                ) from err
            raise DialError(f"cannot be configured ({err.code().name}: {_details(err)})") from err
        if reply.error:
            raise ArgumentsRefusedError(without_hidden(reply.error))
        return reply

    async def refuse(self, reason: str) -> None:
        """Call Configure to refuse the instance; ignore an instance that does not answer."""
        request = refuse(self._attachment_id, reason)
        try:
            await in_time(
                self._stub.Configure(request, timeout=HANDSHAKE_S, metadata=self._metadata), HANDSHAKE_S
            )
        except grpc.aio.AioRpcError as err:
            _LOG.debug("attachment.refusal_unheard", place=self._place.title, error=_details(err))

    async def drain(self, reason: str, grace_s: float, ends_s: float, *, final: bool) -> None:
        """Call Drain to announce that no new work will come; ignore an instance that does not answer.

        Args:
            ends_s: When the host stops waiting, in monotonic seconds.
            final: False if this host may attach to the instance again.
        """
        request = identity_pb2.DrainRequest(
            reason=reason,
            grace=Duration(seconds=int(grace_s), nanos=int(grace_s % 1 * 1e9)),
            final=final,
            attachment_id=self._attachment_id,
        )
        left_s = max(ends_s - monotonic_s(), 0.1)
        try:
            await in_time(self._stub.Drain(request, timeout=left_s, metadata=self._metadata), left_s)
        except grpc.aio.AioRpcError as err:
            _LOG.debug("attachment.drain_unheard", place=self._place.title, error=_details(err))


def credential_for(place: Place, child: Child | None) -> str:
    """Return the secret that the instance expects, empty for none.

    The file is read for each attempt, because it may change. Raises DialError.
    """
    if child is not None:
        return child.credential
    if not place.credential_file:
        return ""
    try:
        credential = read_credential(place.credential_file)
    except CredentialError as err:
        raise DialError(str(err)) from err
    hide([credential])
    return credential


def _details(err: grpc.aio.AioRpcError) -> str:
    """Return the server's text without the configuration's secrets, which the server may repeat."""
    return without_hidden(err.details() or "")
