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
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar
from urllib.parse import unquote

from berth_sdk.clocks import monotonic_s

from berth_host.endpoints.options import ServingOptions
from berth_host.endpoints.reviews import Reviews
from berth_host.errors.endpoints import ReviewError
from berth_host.log import get_logger
from berth_host.model.sparing_lines import SparingLines
from berth_host.model.user import ANONYMOUS, AUTHENTICATED_GROUP, MASTERS_GROUP, ClientTrust, User

V = TypeVar("V")
MOST = 4096
"""The number of kept answers of each kind."""
LATELY_S: Final = 3600.0
"""Seconds for which a caller who was identified, or had a right, does not queue with strangers."""


class Expiring(Generic[V]):
    """The API server's answers about tokens and permissions, each kept for some seconds.

    `now_s`: reads a monotonic clock. `most`: the number of answers to keep; the oldest are dropped first.
    """

    def __init__(self, now_s: Callable[[], float] = monotonic_s, most: int = MOST) -> None:
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
    """The API server's reviews of users (`berth_kube.reviews`). The calls raise ReviewError."""

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
    """A verified client certificate. `by_client_ca`, `by_proxy_ca`: which of the CAs issued it. `ends_s`: its
    notAfter, in seconds since 1970.
    """

    common_name: str
    organisations: tuple[str, ...]
    by_client_ca: bool
    by_proxy_ca: bool
    ends_s: float = math.inf


class Authentication:
    """The authentication of requests, with a cache of token reviews."""

    def __init__(
        self, options: ServingOptions, reviewer: Reviewer, now_s: Callable[[], float] = monotonic_s
    ) -> None:
        self._ttl_s = options.token_ttl_s
        self._reviewer = reviewer
        # Two caches, so that made-up tokens push out no valid one.
        self._users: Expiring[User] = Expiring(now_s)
        self._refused: Expiring[bool] = Expiring(now_s)
        self._valid_lately: Expiring[bool] = Expiring(now_s)
        self._reviews: Reviews[User | None] = Reviews(now_s)
        self.lines = SparingLines(now_s)
        """The limit of the lines about reviews that failed."""
        self.trust = options.trust
        """The CAs whose client certificates are accepted; the server updates them."""

    async def user_of(
        self, headers: Mapping[str, Sequence[str]], certificate: Certificate | None, peer: str = ""
    ) -> User | None:
        """Return the request's user; None if its credentials are not valid. Raises BusyError.

        `headers`: by name in lower case. `peer`: who asks; callers of different peers take turns.
        """
        if certificate is not None and certificate.by_proxy_ca:
            names = self.trust.proxy_names
            if not names or certificate.common_name in names:
                user = _user_in(headers, self.trust)
                if user is not None:
                    return user if _is_utf8(user) else None
        if certificate is not None and certificate.by_client_ca:
            return _authenticated(User(name=certificate.common_name, groups=certificate.organisations))
        token = _bearer_token(headers)
        if token is None:
            return ANONYMOUS if certificate is None or certificate.by_proxy_ca else None
        return await self._user_of_token(token, peer)

    async def _user_of_token(self, token: str, peer: str) -> User | None:
        try:
            raw = token.encode()
        except UnicodeEncodeError:
            return None  # The header is no UTF-8, so no token that an API server issues.
        # The token itself must not be stored.
        key = hashlib.sha256(raw).digest()
        user = self._users.get(key)
        if user is not None or self._refused.get(key):
            return user
        try:
            user = await self._reviews.ask(
                key,
                lambda: self._reviewer.user_of(token),
                peer=peer,
                is_stranger=self._valid_lately.get(key) is None,
            )
        except ReviewError as err:
            _tell_failed(self.lines, "TokenReview", err)
            return None
        if user is None:
            self._refused.put(key, True, self._ttl_s)
            return None
        user = _authenticated(user)
        self._users.put(key, user, self._ttl_s)
        self._valid_lately.put(key, True, LATELY_S)
        return user


class Authorization:
    """The authorization of users, with a cache of access reviews."""

    def __init__(
        self, options: ServingOptions, reviewer: Reviewer, now_s: Callable[[], float] = monotonic_s
    ) -> None:
        self._options = options
        self._reviewer = reviewer
        # Two caches, so that made-up paths push out no right.
        self._allowed: Expiring[bool] = Expiring(now_s)
        self._denied: Expiring[bool] = Expiring(now_s)
        self._allowed_lately: Expiring[bool] = Expiring(now_s)
        self._reviews: Reviews[bool] = Reviews(now_s)
        self.lines = SparingLines(now_s)
        """The limit of the lines about reviews that failed."""

    async def may(self, user: User, method: str, path: str, peer: str = "") -> bool:
        """Return True if `user` may use `method` (GET) on `path`. Raises BusyError. `peer`: who asks."""
        if self.is_open(path) or MASTERS_GROUP in user.groups:
            return True
        verb = method.lower()
        key = (user.key, verb, path)
        if self._allowed.get(key):
            return True
        if self._denied.get(key) or not _is_text(path):
            return False
        try:
            allowed = await self._reviews.ask(
                key,
                lambda: self._reviewer.may(user, verb, path),
                peer=peer,
                is_stranger=self._allowed_lately.get(user.key) is None,
            )
        except ReviewError as err:
            _tell_failed(self.lines, "SubjectAccessReview", err)
            return False
        if allowed:
            self._allowed.put(key, True, self._options.allowed_ttl_s)
            self._allowed_lately.put(user.key, True, LATELY_S)
        else:
            self._denied.put(key, True, self._options.denied_ttl_s)
        return allowed

    def is_open(self, path: str) -> bool:
        """Return True for a path that needs no right."""
        return _is_open(path, self._options.always_allowed)


def _tell_failed(lines: SparingLines, review: str, err: ReviewError) -> None:
    left_out = lines.take()
    if left_out is not None:
        log.warning("endpoints.review_failed", review=review, problem=str(err), left_out=left_out)


def _is_text(value: str) -> bool:
    """Return False for what cannot be written as UTF-8, and so not sent to an API server."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_utf8(user: User) -> bool:
    """Return False if a front proxy's headers are no UTF-8."""
    extra = (text for name, values in user.extra.items() for text in (name, *values))
    return all(map(_is_text, (user.name, user.uid, *user.groups, *extra)))


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
