"""`UserCluster`: an API server, as a user's kubeconfig reaches it; and the ConfigMap of a Policy.

`kubectl berth` and `berth compare` use it with a user's kubeconfig, `berth scheduler` while it reads an older
configuration.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from berth_kube import config_maps
from berth_kube.client import KubeClient
from berth_kube.connection import Connection
from berth_kube.copying import ClusterCopy, copy_cluster
from berth_kube.credentials import Credentials
from berth_kube.user_config import UserConfig

_INSTEAD = ", or name the scheduler with --server https://HOST:10259"


class UserCluster:
    """The cluster that a user's kubeconfig and context choose.

    `namespace`: the context's. `user_agent`: the User-Agent of requests.
    """

    def __init__(self, config: UserConfig, user_agent: str) -> None:
        self.namespace = config.namespace
        self._connection = Connection(kubeconfig=config.path, context=config.context, user_agent=user_agent)

    @classmethod
    def find(
        cls, kubeconfig: str = "", context: str = "", *, user_agent: str, instead: str = _INSTEAD
    ) -> UserCluster:
        """Find the cluster. Raises ClientConfigError if there is no kubeconfig, or no context.

        `instead`: what the user can do without a kubeconfig, for the error.
        """
        return cls(UserConfig.find(kubeconfig, context, instead=instead), user_agent)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[KubeClient]:
        """Yield a client of the API server, for the block. Raises ClientConfigError."""
        client = await KubeClient.open(self._connection)
        try:
            yield client
        finally:
            await client.close()

    async def show_user_in(self, context: ssl.SSLContext) -> str:
        """Load the client certificate, if there is one, into `context`; return the Authorization header.

        The header is "" for a user without a token. Raises ClientConfigError.
        """
        known = await Credentials.open(self._connection)
        known.show_certificate_in(context)
        return known.authorization

    async def copied(self) -> ClusterCopy:
        """Return all objects that scheduling reads. Raises as `berth_kube.copying.copy_cluster`."""
        return await copy_cluster(self._connection)


def read_config_map(
    namespace: str, name: str, *, kubeconfig: str, master: str, user_agent: str
) -> Mapping[str, str]:
    """Return the data of a ConfigMap. Raises ClusterError and ClientConfigError."""
    connection = Connection(kubeconfig=kubeconfig, master=master, user_agent=user_agent)
    return config_maps.read_config_map(connection, namespace, name)
