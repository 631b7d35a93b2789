"""Checks `handle` of a BerthConfiguration: where plugins behind TLS ask their host. Called by `checks`."""

from __future__ import annotations

from berth_host.config.berth.tcp import check_tls_files, host_in, ip_in
from berth_host.config.berth.types_v1alpha1 import HandleV1Alpha1
from berth_host.config.errors import Finding, invalid, required


def check_handle(handle: HandleV1Alpha1 | None) -> list[Finding]:
    """Empty where there is none, or nothing is wrong with it."""
    if handle is None:
        return []
    findings = _check_bind(handle.bind_address) + _check_advertised(handle.advertise_address)
    if handle.tls is None:
        message = "plugins ask their host over TLS: caFile, certFile and keyFile"
        return [*findings, required("handle.tls", message)]
    return [*findings, *check_tls_files("handle.tls", handle.tls)]


def _check_bind(address: str) -> list[Finding]:
    path, message = "handle.bindAddress", "an address of this machine and a port, such as 0.0.0.0:10270"
    if not address:
        return [required(path, message)]
    host = host_in(address)
    return [invalid(path, address, message)] if host is None or ip_in(host) is None else []


def _check_advertised(address: str) -> list[Finding]:
    path = "handle.advertiseAddress"
    if not address:
        return []
    host = host_in(address)
    if host is None:
        return [invalid(path, address, "write it as host:port")]
    ip = ip_in(host)
    if ip is not None and ip.is_unspecified:
        return [invalid(path, address, "plugins cannot dial it: name the host as they reach it")]
    return []
