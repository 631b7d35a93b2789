"""Authentication and authorization of requests by the API server; its answers are cached for seconds.

    front proxy's certificate -> the user in its headers
    client certificate        -> common name and organisations
    bearer token              -> TokenReview          none of these -> system:anonymous
    then: a path open to every user | system:masters | SubjectAccessReview -> allowed or denied

Source: `k8s.io/apiserver/pkg/server/options` (DelegatingAuthenticationOptions,
DelegatingAuthorizationOptions) and the chains they build, v1.36. If the API server cannot be reached, the
request is denied.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from urllib.parse import unquote

from berth_host.endpoints.options import ServingOptions
from berth_host.errors.endpoints import ReviewError
from berth_host.log import get_logger
from berth_host.model.user import ANONYMOUS, AUTHENTICATED_GROUP, MASTERS_GROUP, ClientTrust, User

V = TypeVar("V")
MOST = 4096
"""The number of kept answers of each kind."""


class Expiring(Generic[V]):
    """The API server's answers about tokens and permissions, each kept for some seconds.

    `now_s`: reads a monotonic clock. `most`: the number of answers to keep; the oldest are dropped first.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic, most: int = MOST) -> None:
        self._now_s = now_s
        self._most = most
        self._kept: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        """Return the answer for `key`; None if it is not kept or has expired."""
        found = self._kept.get(key)
        if found is None:
            return None
        ends_s, value = found
        if self._now_s() >= ends_s:
            del self._kept[key]
            return None
        return value

    def put(self, key: Hashable, value: V, ttl_s: float) -> None:
        """Keep `value` for `ttl_s` seconds; do nothing for 0."""
        if ttl_s <= 0:
            return
        self._kept.pop(key, None)
        self._kept[key] = (self._now_s() + ttl_s, value)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


log = get_logger()


class Reviewer(Protocol):
    """The API server's reviews of users (`cluster.kube.reviews`). The calls raise ReviewError."""

    async def user_of(self, token: str) -> User | None:
        """Return the token's user by a TokenReview; None if the token is not valid."""
        ...

    async def may(self, user: User, verb: str, path: str) -> bool:
        """Return True if a SubjectAccessReview allows the verb on a nonresource path."""
        ...

    async def trust(self) -> ClientTrust:
        """Read the ConfigMap kube-system/extension-apiserver-authentication; empty if it does not exist."""
        ...


class NoReviewer:
    """A reviewer without an API server, as on the embedded cluster: every token and right is refused."""

    async def user_of(self, token: str) -> User | None:
        """Return no user."""
        return None

    async def may(self, user: User, verb: str, path: str) -> bool:
        """Return False."""
        return False

    async def trust(self) -> ClientTrust:
        """Return no CAs."""
        return ClientTrust()


@dataclass(frozen=True, slots=True)
class Certificate:
    """A verified client certificate. `by_client_ca`, `by_proxy_ca`: which of the CAs issued it."""

    common_name: str
    organisations: tuple[str, ...]
    by_client_ca: bool
    by_proxy_ca: bool


class Authentication:
    """The authentication of requests, with a cache of token reviews."""

    def __init__(
        self, options: ServingOptions, reviewer: Reviewer, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._ttl_s = options.token_ttl_s
        self._reviewer = reviewer
        self._known: Expiring[User | str] = Expiring(now_s)
        self.trust = options.trust
        """The CAs whose client certificates are accepted; the server updates them."""

    async def user_of(
        self, headers: Mapping[str, Sequence[str]], certificate: Certificate | None
    ) -> User | None:
        """Return the request's user; None if its credentials are not valid.

        `headers`: by name in lower case.
        """
        if certificate is not None and certificate.by_proxy_ca:
            names = self.trust.proxy_names
            if not names or certificate.common_name in names:
                user = _user_in(headers, self.trust)
                if user is not None:
                    return user
        if certificate is not None and certificate.by_client_ca:
            return _authenticated(User(name=certificate.common_name, groups=certificate.organisations))
        token = _bearer_token(headers)
        if token is None:
            return ANONYMOUS if certificate is None or certificate.by_proxy_ca else None
        return await self._user_of_token(token)

    async def _user_of_token(self, token: str) -> User | None:
        # The token itself must not be stored.
        key = hashlib.sha256(token.encode()).digest()
        known = self._known.get(key)
        if known is not None:
            return known if isinstance(known, User) else None
        try:
            user = await self._reviewer.user_of(token)
        except ReviewError as err:
            log.warning("endpoints.review_failed", review="TokenReview", problem=str(err))
            return None
        if user is not None:
            user = _authenticated(user)
        self._known.put(key, user or "nobody", self._ttl_s)
        return user


class Authorization:
    """The authorization of users, with a cache of access reviews."""

    def __init__(
        self, options: ServingOptions, reviewer: Reviewer, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._reviewer = reviewer
        self._known: Expiring[bool] = Expiring(now_s)

    async def may(self, user: User, method: str, path: str) -> bool:
        """Return True if `user` may use `method` (GET) on `path`."""
        if _is_open(path, self._options.always_allowed) or MASTERS_GROUP in user.groups:
            return True
        verb = method.lower()
        key = (user.key, verb, path)
        known = self._known.get(key)
        if known is not None:
            return known
        try:
            allowed = await self._reviewer.may(user, verb, path)
        except ReviewError as err:
            log.warning("endpoints.review_failed", review="SubjectAccessReview", problem=str(err))
            return False
        options = self._options
        self._known.put(key, allowed, options.allowed_ttl_s if allowed else options.denied_ttl_s)
        return allowed


def _is_open(path: str, paths: Sequence[str]) -> bool:
    """Return True if a pattern matches the path: `/a` only itself, `/a/*` all paths below."""
    return any(
        path.startswith(one[:-1]) if one.endswith("*") else path.strip("/") == one.strip("/") for one in paths
    )


def _authenticated(user: User) -> User:
    if AUTHENTICATED_GROUP in user.groups:
        return user
    groups = (*user.groups, AUTHENTICATED_GROUP)
    return User(name=user.name, uid=user.uid, groups=groups, extra=user.extra)


def _bearer_token(headers: Mapping[str, Sequence[str]]) -> str | None:
    """Return the bearer token; None without one."""
    scheme, _, token = (headers.get("authorization") or ("",))[0].strip().partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token else None


def _user_in(headers: Mapping[str, Sequence[str]], trust: ClientTrust) -> User | None:
    """Return the user that a front proxy names in headers; None without one."""

    def first(names: Sequence[str]) -> str:
        return next((headers[name.lower()][0] for name in names if headers.get(name.lower())), "")

    name = first(trust.user_headers)
    if not name:
        return None
    groups = tuple(group for one in trust.group_headers for group in headers.get(one.lower(), ()))
    extra = {
        unquote(header[len(prefix) :]): tuple(values)
        for prefix in (one.lower() for one in trust.extra_prefixes)
        for header, values in headers.items()
        if header.startswith(prefix)
    }
    return _authenticated(User(name=name, uid=first(trust.uid_headers), groups=groups, extra=extra))
