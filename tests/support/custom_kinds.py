"""Custom resources on a real API server: their definitions, and the scheduler's rights to them."""

from __future__ import annotations

import urllib.error
from collections.abc import Sequence
from typing import Any, Final

from berth_bench.versus.real_servers import SCHEDULER, RealServers
from support.deployed import put
from support.waiting import wait_until

Json = dict[str, Any]
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RBAC: Final = "rbac.authorization.k8s.io"
FREE_FORM: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
"""The schema of an object with any fields."""


def install(
    servers: RealServers, definition: Json, rules: Sequence[Json], *, schema: Json = FREE_FORM
) -> None:
    """Make the API server serve a kind of the namespace `default`, and give the scheduler's user the rights.

    `definition`: group, version, kind, plural. `schema`: of the whole object.
    """
    group, version, kind, plural = (definition[key] for key in ("group", "version", "kind", "plural"))
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            # The API server wants an approval for groups below k8s.io.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
    try:
        servers.request("POST", _DEFINITIONS, body)
    except urllib.error.HTTPError as err:
        if err.code != 409:
            raise
    name = f"berth-tests-{plural}.{group}"
    put(
        servers,
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": list(rules),
        },
    )
    put(
        servers,
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": SCHEDULER}],
        },
    )
    path = f"/apis/{group}/{version}/namespaces/default/{plural}"
    wait_until(lambda: _is_served(servers, path), f"the API server serves {plural} of {group}")


def _is_served(servers: RealServers, path: str) -> bool:
    try:
        servers.request("GET", path)
    except urllib.error.HTTPError as err:
        # 429: the API server is still making the storage of the new kind.
        if err.code not in (404, 429):
            raise
        return False
    return True
