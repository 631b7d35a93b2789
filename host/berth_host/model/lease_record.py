"""`LeaseRecord`: the fields of a Lease about its holder, read from and written into the object.

Used by `lease`. The label by which `kubectl berth` finds the Lease is written with them.
Source: `k8s.io/client-go/tools/leaderelection/resourcelock/leaselock.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

API_VERSION: Final = "coordination.k8s.io/v1"
LABEL: Final = "berth.io/scheduler"
"""The label of a Lease that a berth scheduler holds or released; `kubectl berth` finds the scheduler by it.
The value is the unique part of the holder's identity. kube-scheduler keeps the label when it acquires the
Lease, and then the value is not part of the holder's identity.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """The holder's fields. `holder`: "" for none. Times are MicroTime texts; `duration_s` whole seconds."""

    holder: str
    duration_s: int
    acquire_time: str
    renew_time: str
    transitions: int

    @classmethod
    def of(cls, lease: Mapping[str, Any]) -> LeaseRecord:
        """Read a Lease object; missing fields become empty or 0."""
        spec = lease.get("spec") or {}
        return cls(
            holder=spec.get("holderIdentity") or "",
            duration_s=spec.get("leaseDurationSeconds") or 0,
            acquire_time=spec.get("acquireTime") or "",
            renew_time=spec.get("renewTime") or "",
            transitions=spec.get("leaseTransitions") or 0,
        )

    def put_into(self, lease: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of the Lease object with this record as its spec and with the holder's label."""
        metadata = lease.get("metadata") or {}
        labels = dict(metadata.get("labels") or {})
        if self.holder:  # A released Lease keeps the label, so that it is found as one without a holder.
            labels[LABEL] = label_value(self.holder)
        return {
            "kind": "Lease",
            "apiVersion": API_VERSION,
            **lease,
            "metadata": {**metadata, "labels": labels},
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": self.duration_s,
                "acquireTime": self.acquire_time,
                "renewTime": self.renew_time,
                "leaseTransitions": self.transitions,
            },
        }


def label_value(identity: str) -> str:
    """Return the value of `LABEL` for a holder. Its identity is a host name, `_` and a UUID."""
    return identity.rpartition("_")[2]
