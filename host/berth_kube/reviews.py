"""`KubeReviewer`: delegated authentication and authorization of the secure port's callers.

Made by `endpoints.secure_port`; `endpoints.access` has the Protocol. Source: `authentication.k8s.io/v1`
TokenReview, `authorization.k8s.io/v1` SubjectAccessReview, and the ConfigMap that the API server publishes
for extension servers (`kube-system/extension-apiserver-authentication`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from berth_host.errors.cluster import ClusterError, NotFoundError
from berth_host.errors.endpoints import ReviewError
from berth_host.model.user import ClientTrust, User

from berth_kube.answers import check_object
from berth_kube.client import KubeClient

TIMEOUT_S: Final = 10.0
_TOKENS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_TRUST: Final = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


class KubeReviewer:
    """Reviews by an API server. The two clients are usually the same one.

    `authentication` reviews tokens and reads the client CAs; `authorization` reviews rights.
    """

    def __init__(self, authentication: KubeClient, authorization: KubeClient) -> None:
        self._authentication = authentication
        self._authorization = authorization

    async def user_of(self, token: str) -> User | None:
        """Return the token's user; None if the token is not valid. Raises ReviewError."""
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        status = await _status(self._authentication, _TOKENS, review)
        if not status.get("authenticated"):
            return None
        user = status.get("user") or {}
        return User(
            name=str(user.get("username", "")),
            uid=str(user.get("uid", "")),
            groups=tuple(user.get("groups") or ()),
            extra={name: tuple(values) for name, values in (user.get("extra") or {}).items()},
        )

    async def may(self, user: User, verb: str, path: str) -> bool:
        """Return True if RBAC grants `user` the verb on the path. Raises ReviewError."""
        spec: dict[str, Any] = {
            "nonResourceAttributes": {"path": path, "verb": verb},
            "user": user.name,
            "groups": list(user.groups),
        }
        if user.uid:
            spec["uid"] = user.uid
        if user.extra:
            spec["extra"] = {name: list(values) for name, values in user.extra.items()}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = await _status(self._authorization, _ACCESS, review)
        return bool(status.get("allowed")) and not status.get("denied")

    async def trust(self) -> ClientTrust:
        """Return the CAs whose client certificates are accepted; empty if the ConfigMap does not exist.

        Raises ReviewError.
        """
        try:
            found = await self._authentication.request("GET", _TRUST, timeout_s=TIMEOUT_S, limited=False)
            check_object(found, "ConfigMap", "configmaps", "kube-system/extension-apiserver-authentication")
        except ClusterError as err:
            if isinstance(err, NotFoundError) and err.outcome_known:
                return ClientTrust()
            raise ReviewError(
                f"reading configmap kube-system/extension-apiserver-authentication: {err}"
            ) from err
        data = found.get("data") or {}
        usual = ClientTrust()
        return ClientTrust(
            client_ca=str(data.get("client-ca-file", "")),
            proxy_ca=str(data.get("requestheader-client-ca-file", "")),
            proxy_names=_names(data, "requestheader-allowed-names"),
            user_headers=_names(data, "requestheader-username-headers") or usual.user_headers,
            uid_headers=_names(data, "requestheader-uid-headers"),
            group_headers=_names(data, "requestheader-group-headers") or usual.group_headers,
            extra_prefixes=_names(data, "requestheader-extra-headers-prefix") or usual.extra_prefixes,
        )


async def _status(client: KubeClient, path: str, review: Mapping[str, Any]) -> Mapping[str, Any]:
    """Post a review and return its status. Reviews bypass the rate limit, so they never wait for bindings."""
    try:
        answer = await client.request("POST", path, body=review, timeout_s=TIMEOUT_S, limited=False)
    except ClusterError as err:
        raise ReviewError(str(err)) from err
    status = answer.get("status")
    if answer.get("kind") != review["kind"] or not isinstance(status, dict):
        raise ReviewError(f"the answer to a {review['kind']} is none; a proxy may have answered in its place")
    return status


def _names(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    """Return the JSON list of strings under `key`; empty if the value is missing or is no such list."""
    try:
        found: Any = json.loads(data.get(key) or "[]")
    except ValueError:
        return ()
    return tuple(map(str, found)) if isinstance(found, Sequence) and not isinstance(found, str) else ()
