"""Checks the types of the fields of a kubeconfig's entry. Called by `kubeconfig`.

YAML reads an unquoted 5 as a number and 2026-01-01 as a date. As in Go's decoder, a value that is not text is
refused before it is used. Source: client-go `tools/clientcmd/api/v1/types.go` and
`tools/clientcmd/client_config.go` (parseProxyURL), v1.36.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

_TEXTS: Final = {
    "context": ("cluster", "user", "namespace"),
    "cluster": (
        *("server", "tls-server-name", "proxy-url"),
        *("certificate-authority", "certificate-authority-data"),
    ),
    "user": (
        *("client-certificate", "client-certificate-data", "client-key", "client-key-data"),
        *("token", "tokenFile", "username", "password"),
    ),
    "exec": ("command", "apiVersion", "installHint", "interactiveMode"),
}
_SWITCHES: Final = {
    "cluster": ("insecure-skip-tls-verify", "disable-compression"),
    "exec": ("provideClusterInfo",),
}
_PROXY_SCHEMES: Final = ("http", "https")
_SECRET: Final = ("token", "password", "client-key-data")


def check_types(kind: str, part: Mapping[str, Any]) -> None:
    """Check that texts are texts and switches are booleans. `kind`: context, cluster, user or exec.

    Raises ValueError, which names the field and the cure.
    """
    for field in _TEXTS[kind]:
        if not isinstance(part.get(field), str | None):
            shown = "" if field in _SECRET else f" {part[field]!r}"
            raise ValueError(f"{field}{shown} is not text; put it in quotes")
    for field in _SWITCHES.get(kind, ()):
        if not isinstance(part.get(field), bool | None):
            raise ValueError(f"{field} is {part[field]!r}; write true or false, without quotes")


def check_exec_lists(plugin: Mapping[str, Any]) -> None:
    """Check `args` and `env` of an exec plugin. Raises ValueError."""
    arguments, variables = plugin.get("args") or [], plugin.get("env") or []
    if not isinstance(arguments, list) or not all(isinstance(one, str) for one in arguments):
        raise ValueError("args is not a list of texts; put each in quotes")
    if not isinstance(variables, list) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("value"), str)
        for one in variables
    ):
        raise ValueError("env is not a list of variables; write each as {name: NAME, value: 'VALUE'}")


def check_proxy(url: str) -> None:
    """Raise ValueError, with the reason, for a URL that cannot be a proxy."""
    try:
        parts = urlsplit(url)
        is_url = bool(parts.hostname) and parts.port != 0 and not any(sign.isspace() for sign in url)
    except ValueError:
        is_url = False
        parts = urlsplit("")
    if parts.scheme and parts.scheme not in _PROXY_SCHEMES and is_url:
        raise ValueError(f"has the scheme {parts.scheme!r}; use a proxy with http or https")
    if not is_url or not parts.scheme:
        raise ValueError("is not a URL; write it as http://HOST:PORT")


def check_server_name(name: str) -> None:
    """Raise ValueError, with the reason, for a name that TLS cannot request (SNI)."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(
            ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=name
        )
    except (ValueError, OSError) as err:  # ssl.SSLError is an OSError.
        raise ValueError("is not a host name") from err
