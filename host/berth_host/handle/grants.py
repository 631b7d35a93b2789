"""`Grants`: which attachment may call back, for which plugins, with which secret.

A token is made for each attachment and is worth nothing once that has ended. Asked by `HandleService`
for every call. Implements `attach.configure.HandleGrants` together with `HandleServer`.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from berth_sdk.clocks import wall_s
from berth_sdk.wire.message_limit import DEFAULT_BYTES
from berth_sdk.wire.peer_certificate import has_ended
from berth_sdk.wire.peer_names import bears, is_over_tls, peer_names

from berth_host.log.hidden import forget, hide

_TOKEN_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Grant:
    """One attachment's right to call back in the name of `plugins`. `tls_name`: the name in the certificate
    of whoever uses it; empty: it is used on this machine. `max_message_bytes`: the agreed limit, in either
    direction.
    """

    attachment_id: str
    plugins: frozenset[str]
    token: bytes
    tls_name: str
    max_message_bytes: int

    def __repr__(self) -> str:
        return f"Grant({self.attachment_id}, {sorted(self.plugins)})"  # a secret is never shown

    def why_not_of(self, properties: Mapping[str, Any]) -> str:
        """Why the token is not for a caller, who may have got it from somebody else; empty: it is.
        `properties`: what gRPC's `auth_context()` says of the caller.
        """
        if not self.tls_name:
            return "the token is for this machine" if is_over_tls(properties) else ""
        names = peer_names(properties)
        if has_ended(properties, wall_s()):
            return "the certificate of this connection has expired: connect again"
        if is_over_tls(properties) and bears(names, self.tls_name):
            return ""
        shown = f"one that names {', '.join(names)}" if names else "none"
        return f"the token is for a certificate that names {self.tls_name}, and this call shows {shown}"


class Grants:
    """The grants of all attachments."""

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}

    def add(
        self,
        attachment_id: str,
        plugins: frozenset[str],
        tls_name: str = "",
        max_message_bytes: int = DEFAULT_BYTES,
    ) -> str:
        """Return a new token for an attachment. The attachment's older token ends."""
        self._end(self._grants.get(attachment_id))
        token = secrets.token_hex(_TOKEN_BYTES)
        hide([token])
        self._grants[attachment_id] = Grant(
            attachment_id, plugins, token.encode(), tls_name, max_message_bytes
        )
        return token

    def remove(self, attachment_id: str, plugin: str = "") -> None:
        """Remove the grant of an attachment, or of one of its plugins. Without a grant, nothing happens."""
        found = self._grants.pop(attachment_id, None)
        if found is not None and plugin:
            self._grants[attachment_id] = replace(found, plugins=found.plugins - {plugin})
        else:
            self._end(found)

    @staticmethod
    def _end(grant: Grant | None) -> None:
        if grant is not None:
            forget([grant.token.decode()])

    def find(self, token: bytes) -> Grant | None:
        """Return the grant of a token; None: unknown. Compares with every token, each in constant time."""
        found = None
        for grant in self._grants.values():
            if hmac.compare_digest(grant.token, token):
                found = grant
        return found
