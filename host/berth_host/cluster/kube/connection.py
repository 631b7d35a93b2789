"""How to reach the API server: the part of the configuration and of the flags that says so.

Made by the CLI from `--kubeconfig`, `--master` and `clientConnection`; read by `credentials` and `client`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """`kubeconfig`: a path, or several as KUBECONFIG lists them; empty for a pod's service account;
    `master`: a URL that beats the file's; `context`: which of the file's, empty for its current one.

    `qps` requests per second on average, `burst` at once; a negative `qps` lifts the limit.
    `accept_content_types` and `content_type` are taken and have no effect: berth speaks JSON.
    """

    kubeconfig: str = ""
    master: str = ""
    context: str = ""
    qps: float = 50
    burst: int = 100
    user_agent: str = "berth"
    accept_content_types: str = ""
    content_type: str = ""
