"""The resources of Kubernetes, to distinguish a misspelt name from a custom resource.

Used by `attach.handshake` for plugins' declared resources. The groups listed here are complete; any other
group may be defined by a CustomResourceDefinition. Source: the API reference of Kubernetes v1.36.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "": (
        *(
            "configmaps",
            "endpoints",
            "events",
            "limitranges",
            "namespaces",
            "nodes",
            "persistentvolumeclaims",
        ),
        *("persistentvolumes", "pods", "podtemplates", "replicationcontrollers", "resourcequotas", "secrets"),
        *("serviceaccounts", "services"),
    ),
    "admissionregistration.k8s.io": (
        *("mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations"),
        *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
        "validatingwebhookconfigurations",
    ),
    "apiextensions.k8s.io": ("customresourcedefinitions",),
    "apiregistration.k8s.io": ("apiservices",),
    "apps": ("controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"),
    "autoscaling": ("horizontalpodautoscalers",),
    "batch": ("cronjobs", "jobs"),
    "certificates.k8s.io": ("certificatesigningrequests", "clustertrustbundles", "podcertificaterequests"),
    "coordination.k8s.io": ("leasecandidates", "leases"),
    "discovery.k8s.io": ("endpointslices",),
    "events.k8s.io": ("events",),
    "flowcontrol.apiserver.k8s.io": ("flowschemas", "prioritylevelconfigurations"),
    "networking.k8s.io": ("ingressclasses", "ingresses", "ipaddresses", "networkpolicies", "servicecidrs"),
    "node.k8s.io": ("runtimeclasses",),
    "policy": ("poddisruptionbudgets",),
    "rbac.authorization.k8s.io": ("clusterrolebindings", "clusterroles", "rolebindings", "roles"),
    "resource.k8s.io": (
        *("deviceclasses", "devicetaintrules", "resourceclaims", "resourceclaimtemplates"),
        *("resourcepoolstatusrequests", "resourceslices"),
    ),
    "scheduling.k8s.io": ("podgroups", "priorityclasses", "workloads"),
    "storage.k8s.io": (
        *("csidrivers", "csinodes", "csistoragecapacities", "storageclasses", "volumeattachments"),
        "volumeattributesclasses",
    ),
    "storagemigration.k8s.io": ("storageversionmigrations",),
}
_NAMES: Final = tuple(
    f"{group}/{plural}" if group else plural for group, plurals in _GROUPS.items() for plural in plurals
)


def misspelt(resource: str) -> str | None:
    """Return None if `resource` may exist; else the similar name that was probably meant, "" for none.

    >>> misspelt("persistentvolumeclaim")
    'persistentvolumeclaims'
    >>> misspelt("csinodes")
    'storage.k8s.io/csinodes'
    >>> misspelt("example.com/widgets") is None
    True
    """
    group, _, plural = resource.rpartition("/")
    if not plural or plural != plural.lower() or "/" in group:
        return _nearest(resource)
    if group in _GROUPS:
        return None if plural in _GROUPS[group] else _nearest(resource)
    # A group that is not Kubernetes' own must have a domain; its plurals are unknown.
    return None if "." in group else _nearest(resource)


def _nearest(resource: str) -> str:
    plural = resource.lower().rpartition("/")[2]
    for name in _NAMES:
        if plural and name.rpartition("/")[2] in (plural, f"{plural}s"):
            return name
    return next(iter(difflib.get_close_matches(resource.lower(), _NAMES, 1)), "")
