"""The admission plugin ServiceAccount: gives a new pod its service account, and a volume with its token.

Called by the embedded server for `berth bench own`, whose pods are then as a real API server keeps them: the
volume's name is a random one, so no two pods of a controller have equal specs.
Source: `plugin/pkg/admission/serviceaccount/admission.go`, v1.37. Differs: no service account is looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

DEFAULT_ACCOUNT: Final = "default"
TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_PREFIX: Final = "kube-api-access-"
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_RANDOM_LETTERS: Final = 5
_MODE: Final = 0o644
_TOKEN_S: Final = 3607
_CONTAINERS: Final = ("initContainers", "containers")
_SOURCES: Final = (
    {"serviceAccountToken": {"expirationSeconds": _TOKEN_S, "path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {
        "downwardAPI": {
            "items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
            ]
        }
    },
)
Spec = dict[str, Any]


class ServiceAccounts:
    """The admission plugin. `seed`: equal seeds give equal names, in the order of the pods."""

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)

    def completed(self, spec: Mapping[str, Any]) -> Spec:
        """Return the spec with its service account, and with the token where a container has none yet."""
        account = spec.get("serviceAccountName") or DEFAULT_ACCOUNT
        completed = {**spec, "serviceAccountName": account, "serviceAccount": account}
        if spec.get("automountServiceAccountToken") is False or not any(
            _lacks_token(container) for key in _CONTAINERS for container in spec.get(key) or ()
        ):
            return completed
        name = self._name({volume.get("name") for volume in spec.get("volumes") or ()})
        mount = {"name": name, "readOnly": True, "mountPath": TOKEN_PATH}
        for key in _CONTAINERS:
            if spec.get(key):
                completed[key] = [
                    {**one, "volumeMounts": [*(one.get("volumeMounts") or ()), mount]}
                    if _lacks_token(one)
                    else one
                    for one in spec[key]
                ]
        volume = {"name": name, "projected": {"sources": [*_SOURCES], "defaultMode": _MODE}}
        completed["volumes"] = [*(spec.get("volumes") or ()), volume]
        return completed

    def _name(self, taken: set[Any]) -> str:
        while True:
            name = _PREFIX + "".join(self._random.choices(_LETTERS, k=_RANDOM_LETTERS))
            if name not in taken:
                return name


def _lacks_token(container: Mapping[str, Any]) -> bool:
    return all(mount.get("mountPath") != TOKEN_PATH for mount in container.get("volumeMounts") or ())
