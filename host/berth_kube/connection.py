"""`Connection`: how to reach the API server, from the configuration and the flags.

Made by the CLI from `--kubeconfig`, `--master` and `clientConnection`; read by `credentials` and `client`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The address and the credentials of an API server.

    `kubeconfig`: a path, or several as KUBECONFIG lists them; empty for a pod's service account.
    `master`: a URL that overrides the file's server. `context`: a context of the file; empty for the
    current one. `qps`: requests per second on average; a negative value removes the limit. `burst`: requests
    at once. `accept_content_types` and `content_type` are accepted and have no effect: berth uses JSON.
    """

    kubeconfig: str = ""
    master: str = ""
    context: str = ""
    qps: float = 50
    burst: int = 100
    user_agent: str = "berth"
    accept_content_types: str = ""
    content_type: str = ""
