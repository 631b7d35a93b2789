"""coscheduling's PodGroup on a real API server: its CustomResourceDefinition, and the scheduler's rights."""

from __future__ import annotations

import urllib.error
from typing import Any, Final

from berth_bench.versus.real_servers import SCHEDULER, RealServers
from support.deployed import put
from support.waiting import wait_until

Json = dict[str, Any]
_GROUP: Final = "scheduling.x-k8s.io"
_VERSION: Final = "v1alpha1"
PATH: Final = f"apis/{_GROUP}/{_VERSION}/namespaces/default/podgroups"
"""The collection of the groups of the namespace `default`."""
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RBAC: Final = "rbac.authorization.k8s.io"
_FREE_FORM: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_DEFINITION: Final[Json] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"podgroups.{_GROUP}",
        # The API server wants an approval for groups below k8s.io.
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": _GROUP,
        "scope": "Namespaced",
        "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
        "versions": [
            {
                "name": _VERSION,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": _FREE_FORM, "status": _FREE_FORM},
                    }
                },
            }
        ],
    },
}
_RULES: Final = [
    {"apiGroups": [_GROUP], "resources": ["podgroups"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [_GROUP], "resources": ["podgroups/status"], "verbs": ["patch"]},
]
PATCH_PODS: Final[Json] = {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}
"""The right of a PreBind plugin that writes to the pod."""


def install(servers: RealServers, *more_rules: Json) -> None:
    """Make the API server serve PodGroups of coscheduling, and let the scheduler's user see and write them.

    `more_rules`: further rights of that user.
    """
    try:
        servers.request("POST", _DEFINITIONS, _DEFINITION)
    except urllib.error.HTTPError as err:
        if err.code != 409:
            raise
    name = "berth-tests-coscheduling"
    role = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [*_RULES, *more_rules],
    }
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": SCHEDULER}],
    }
    put(servers, role)
    put(servers, binding)
    wait_until(lambda: _is_served(servers), "the API server serves PodGroups of coscheduling")


def _is_served(servers: RealServers) -> bool:
    try:
        servers.request("GET", f"/{PATH}")
    except urllib.error.HTTPError as err:
        # 429: the API server is still making the storage of the new kind.
        if err.code not in (404, 429):
            raise
        return False
    return True
