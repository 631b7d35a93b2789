"""`PluginWork`: metrics of default plugins that the host counts. In kube-scheduler, the plugins count them.

The host counts failures at a point, created objects and waits in PreBind. `framework` and
`cycle.patches` write them.
Source: kube-scheduler `plugins/dynamicresources` (PreBind, createExtendedResourceClaimInAPI) and
`plugins/volumebinding/binder.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from berth_sdk.status import Status

from berth_host.metrics import families
from berth_host.metrics.series import Counters, Histograms, Labels

CLAIMS: Final = "resource.k8s.io/resourceclaims"


class PluginWork:
    """The metrics of the plugins of devices and of volumes. One per process."""

    def __init__(self) -> None:
        self.claim_creates = Counters(families.CLAIM_CREATES)
        self.device_allocations = Counters(families.DEVICE_ALLOCATIONS)
        self.device_waits = Histograms(families.DEVICE_WAIT)
        self.volume_errors = Counters(families.VOLUME_ERRORS)

    def created(self, resource: str, failed: bool) -> None:
        """Count a request to create an object of `resource` for a plugin."""
        if resource == CLAIMS:
            result = "failure" if failed else "success"
            self.claim_creates.add(("false", "", "Pod", result))

    def claim_creates_of_1_36(self) -> Iterator[tuple[Labels, float]]:
        """Yield the numbers of requests for ResourceClaims with the one label that 1.36 has: the result."""
        for (*_, result), value in self.claim_creates.items():
            yield (result,), value

    def filter_failed(self, status: Status, volumes: Collection[str]) -> None:
        """Count a Filter that ended in an error. `volumes`: the plugins that account for volumes, here and
        below.
        """
        if status.plugin in volumes:
            self.volume_errors.add(("predicate",))

    def reserve_failed(self, status: Status, volumes: Collection[str]) -> None:
        """Count a Reserve that failed, if a plugin of volumes did. Some errors name it only in their
        message.
        """
        texts = tuple(f'running Reserve plugin "{name}"' for name in volumes)
        if status.plugin in volumes or status.message.startswith(texts):
            self.volume_errors.add(("assume",))

    def pre_bind_failed(self, status: Status, volumes: Collection[str]) -> None:
        """Count a PreBind that failed, if a plugin of volumes did."""
        if status.plugin in volumes:
            self.volume_errors.add(("bind",))

    def devices_ended(
        self, profile: str, result: str, seconds: float, claims: Iterable[Mapping[str, Any]]
    ) -> None:
        """Count a PreBind that waited `seconds` for the binding conditions of `claims`.

        `result`: success, failure, timeout or error. Nothing is counted if no device has conditions.
        """
        results = [one for claim in claims for one in _devices(claim)]
        if not any(one.get("bindingConditions") for one in results):
            return
        for one in results:
            labels = str(one.get("driver") or ""), profile, result
            self.device_waits.of(*labels).observe(seconds)
            if one.get("bindingConditions"):
                self.device_allocations.add(labels)


def _devices(claim: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or ()
