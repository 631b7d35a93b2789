"""`TlsPort`: HandleService for plugins behind TLS, on a port that other machines reach.

Whoever connects shows a certificate of the authority that the configuration names. Files that are replaced
take effect with the next connection; when the authority is another one, the open connections are closed. What
keeps the port from being opened is the reason why these plugins are not attached, and it is tried again with
each attempt. Opened by `HandleServer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import grpc
from berth_sdk.wire.addresses import host_of
from berth_sdk.wire.certificate import Certificate, CertificateFiles, TlsError

from berth_host.attach.peer import DialError
from berth_host.config.berth.configuration import HandleListener
from berth_host.config.berth.tcp import host_in, ip_in
from berth_host.listening.relay import Relay
from berth_host.log import get_logger
from berth_host.metrics.connection_metrics import ConnectionMetrics

_LOG = get_logger()
LOOK_S: Final = 5.0
"""Seconds between two looks at the file of the authority."""


class TlsPort:
    """closed -open-> open -stop-> closed"""

    def __init__(
        self, listener: HandleListener, own_address: str = "", metrics: ConnectionMetrics | None = None
    ) -> None:
        """`own_address`: where other machines reach this one, as far as its environment tells. `metrics`: of
        connections; None: they are not shown.
        """
        self._listener = listener
        self._metrics = metrics
        self._relay: Relay | None = None
        self._looking: asyncio.Task[None] | None = None
        self._own_address = own_address
        self._server: grpc.aio.Server | None = None
        self._opening = asyncio.Lock()

    async def open(self, make: Callable[[], grpc.aio.Server]) -> tuple[str, str]:
        """Open the port and return (target, the name in the certificate there). `make`: returns a server
        without a port. Raises DialError.
        """
        listener = self._listener
        target = self._target()
        async with self._opening:
            if self._server is None:
                self._server = await self._opened(make)
                _LOG.info("handle.served_over_tls", address=listener.bind_address, target=target)
        return target, listener.tls.server_name or host_of(target)

    async def stop(self, grace_s: float) -> None:
        """Close the port. Does nothing if it was never opened."""
        server, self._server = self._server, None
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking
        if self._relay is not None:
            self._relay.pause()
        if server is not None:
            await server.stop(grace_s)
        if self._relay is not None:
            await self._relay.stop()
            self._relay = None

    async def _opened(self, make: Callable[[], grpc.aio.Server]) -> grpc.aio.Server:
        tls, address = self._listener.tls, self._listener.bind_address
        files = CertificateFiles(cert_file=tls.cert_file, key_file=tls.key_file, ca_file=tls.ca_file)
        try:
            certificate = Certificate(files, _tell)
        except TlsError as err:
            raise DialError(f"it could not ask its host, whose handle.tls cannot be used: {err}") from err
        relay: Relay | None = None
        try:
            relay = Relay("handle", self._metrics)
            relay.bind(host_in(address) or "", int(address.rpartition(":")[2]))
        except (OSError, ValueError) as err:
            if relay is not None:
                await relay.stop()
            text = f"it could not ask its host, which cannot listen at handle.bindAddress {address}"
            raise DialError(f"{text} ({err}): is the address this machine's, and the port free?") from err
        server = make()
        server.add_secure_port(relay.target, certificate.server_credentials())
        await server.start()
        relay.start()
        self._relay = relay
        self._looking = asyncio.create_task(self._close_when_replaced(relay, certificate))
        return server

    async def _close_when_replaced(self, relay: Relay, certificate: Certificate) -> None:
        """Close the connections whenever the authority is another one: gRPC asked for certificates when they
        were opened, and does not ask again.
        """
        authority = certificate.authority
        while True:
            await asyncio.sleep(LOOK_S)
            now = certificate.authority
            if now != authority:
                authority = now
                relay.close_all()

    def _target(self) -> str:
        listener = self._listener
        if listener.advertise_address:
            return listener.advertise_address
        host, port = host_in(listener.bind_address) or "", listener.bind_address.rpartition(":")[2]
        ip = ip_in(host)
        if ip is not None and not ip.is_unspecified:
            return listener.bind_address
        if not self._own_address:
            raise DialError(
                f"it could not ask its host, which listens at {listener.bind_address} and does not know by"
                " which address others reach it: set handle.advertiseAddress, or POD_IP in its environment"
            )
        own = f"[{self._own_address}]" if ":" in self._own_address else self._own_address
        return f"{own}:{port}"


def _tell(problem: str) -> None:
    if problem:
        _LOG.warning("handle.certificate_kept", error=problem)
    else:
        _LOG.info("handle.certificate_replaced")
