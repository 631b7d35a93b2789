"""`LateReviewer`: reviews the users of the secure port by API servers. Made by `process`."""

from __future__ import annotations

from berth_kube.client import KubeClient
from berth_kube.connection import Connection
from berth_kube.reviews import KubeReviewer

from berth_host.endpoints.access import NoReviewer, Reviewer
from berth_host.model.user import ClientTrust, User


class LateReviewer:
    """A `KubeReviewer` with the clients of the kubeconfigs, which are opened when the server starts."""

    def __init__(self, client: KubeClient, authentication: str = "", authorization: str = "") -> None:
        """Review users by `client`, or by other API servers.

        `authentication`: the path of the kubeconfig for TokenReviews, `authorization`: for
        SubjectAccessReviews; "": the API server of `client`.
        """
        self._client = client
        self._kubeconfigs = authentication, authorization
        self._opened: list[KubeClient] = []
        self._reviewer: Reviewer = NoReviewer()

    async def open(self) -> None:
        """Open the clients. Raises ClientConfigError for a kubeconfig that is wrong."""
        authentication, authorization = self._kubeconfigs
        self._reviewer = KubeReviewer(
            await self._client_of(authentication), await self._client_of(authorization)
        )

    async def close(self) -> None:
        """Close the clients that `open` opened."""
        for client in self._opened:
            await client.close()
        self._opened.clear()

    async def _client_of(self, kubeconfig: str) -> KubeClient:
        if not kubeconfig:
            return self._client
        client = await KubeClient.open(Connection(kubeconfig=kubeconfig), self._client.metrics)
        self._opened.append(client)
        return client

    async def user_of(self, token: str) -> User | None:
        """Return the token's user; see `Reviewer`."""
        return await self._reviewer.user_of(token)

    async def may(self, user: User, verb: str, path: str) -> bool:
        """Return True if the user has the right; see `Reviewer`."""
        return await self._reviewer.may(user, verb, path)

    async def trust(self) -> ClientTrust:
        """Return the CAs of client certificates; see `Reviewer`."""
        return await self._reviewer.trust()
