"""A user of the secure port, and the CAs of client certificates. For `endpoints` and `berth_kube`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

ANONYMOUS_NAME: Final = "system:anonymous"
AUTHENTICATED_GROUP: Final = "system:authenticated"
UNAUTHENTICATED_GROUP: Final = "system:unauthenticated"
MASTERS_GROUP: Final = "system:masters"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user. `groups`: in the given order. `extra`: further values by name, from a TokenReview."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def key(self) -> tuple[object, ...]:
        """A value that is equal for users with the same rights."""
        return self.name, self.uid, self.groups, tuple(sorted(self.extra.items()))


ANONYMOUS: Final = User(name=ANONYMOUS_NAME, groups=(UNAUTHENTICATED_GROUP,))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTrust:
    """The CAs whose client certificates identify users, in PEM.

    Front proxies have a CA of their own, and send the user in headers.

    Made from the flags and from the ConfigMap kube-system/extension-apiserver-authentication.
    """

    client_ca: str = ""
    proxy_ca: str = ""
    proxy_names: tuple[str, ...] = ()
    """The common names of front proxies; empty: any."""
    user_headers: tuple[str, ...] = ("x-remote-user",)
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ("x-remote-group",)
    extra_prefixes: tuple[str, ...] = ("x-remote-extra-",)
