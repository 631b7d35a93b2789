"""`TlsPort`: HandleService for plugins behind TLS, on a port that other machines reach.

Whoever connects shows a certificate of the authority that the configuration names; files that are replaced
take effect with the next connection. What keeps the port from being opened is the reason why these plugins
are not attached, and it is tried again with each attempt. Opened by `HandleServer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
from berth_sdk.wire.addresses import host_of
from berth_sdk.wire.certificate import Certificate, CertificateFiles, TlsError

from berth_host.attach.peer import DialError
from berth_host.config.berth.configuration import HandleListener
from berth_host.config.berth.tcp import host_in, ip_in
from berth_host.log import get_logger

_LOG = get_logger()


class TlsPort:
    """closed -open-> open -stop-> closed"""

    def __init__(self, listener: HandleListener, own_address: str = "") -> None:
        """`own_address`: where other machines reach this one, as far as its environment tells."""
        self._listener = listener
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
        if server is not None:
            await server.stop(grace_s)

    async def _opened(self, make: Callable[[], grpc.aio.Server]) -> grpc.aio.Server:
        tls, address = self._listener.tls, self._listener.bind_address
        files = CertificateFiles(cert_file=tls.cert_file, key_file=tls.key_file, ca_file=tls.ca_file)
        server = make()
        try:
            server.add_secure_port(address, Certificate(files, _tell).server_credentials())
        except TlsError as err:
            raise DialError(f"it could not ask its host, whose handle.tls cannot be used: {err}") from err
        except RuntimeError as err:
            text = f"it could not ask its host, which cannot listen at handle.bindAddress {address}"
            raise DialError(f"{text}: is the address this machine's, and the port free?") from err
        await server.start()
        return server

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
