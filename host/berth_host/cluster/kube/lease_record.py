"""`LeaseRecord`: a Lease's fields about its holder, read from the object and written into it.

Used by `lease`. Source: `k8s.io/client-go/tools/leaderelection/resourcelock/leaselock.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

API_VERSION: Final = "coordination.k8s.io/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """`holder` "": none. Times as Kubernetes' MicroTime; `duration_s` whole seconds."""

    holder: str
    duration_s: int
    acquire_time: str
    renew_time: str
    transitions: int

    @classmethod
    def of(cls, lease: Mapping[str, Any]) -> LeaseRecord:
        """Read the object; absent fields are empty."""
        spec = lease.get("spec") or {}
        return cls(
            holder=spec.get("holderIdentity") or "",
            duration_s=spec.get("leaseDurationSeconds") or 0,
            acquire_time=spec.get("acquireTime") or "",
            renew_time=spec.get("renewTime") or "",
            transitions=spec.get("leaseTransitions") or 0,
        )

    def put_into(self, lease: Mapping[str, Any]) -> dict[str, Any]:
        """The object as it was read, with this as its spec."""
        return {
            "kind": "Lease",
            "apiVersion": API_VERSION,
            **lease,
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": self.duration_s,
                "acquireTime": self.acquire_time,
                "renewTime": self.renew_time,
                "leaseTransitions": self.transitions,
            },
        }


def micro_time(moment_s: float) -> str:
    """Unix seconds -> `2026-01-01T00:00:00.000000Z`."""
    return datetime.fromtimestamp(moment_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
