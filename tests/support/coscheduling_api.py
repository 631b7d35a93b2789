"""coscheduling's PodGroup on a real API server: its CustomResourceDefinition, and the scheduler's rights."""

from __future__ import annotations

from typing import Any, Final

from berth_bench.versus.real_servers import RealServers
from support import custom_kinds

Json = dict[str, Any]
_GROUP: Final = "scheduling.x-k8s.io"
_VERSION: Final = "v1alpha1"
PATH: Final = f"apis/{_GROUP}/{_VERSION}/namespaces/default/podgroups"
"""The collection of the groups of the namespace `default`."""
_DEFINITION: Final = {"group": _GROUP, "version": _VERSION, "kind": "PodGroup", "plural": "podgroups"}
_SCHEMA: Final[Json] = {
    "type": "object",
    "properties": {"spec": custom_kinds.FREE_FORM, "status": custom_kinds.FREE_FORM},
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
    custom_kinds.install(servers, _DEFINITION, [*_RULES, *more_rules], schema=_SCHEMA)
