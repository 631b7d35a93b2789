"""The table of mended behaviours: what this build does better than a version of kube-scheduler, by version.

By default every mend is on. A host that emulates a version turns its mends off, so that decisions are the
recorded ones. Plugins read a mend as they read a feature gate, in the arguments; the host reads `events`.
Read by `loading` and `queue.wiring`. The rows are the only place that knows versions.

Source: kube-scheduler v1.36 `EventsToRegister` and the hints of `pkg/scheduler/framework/plugins`;
kubernetes 139161 and 140831 (mended in 1.37), 141953 (open).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from berth_sdk.events import EventInterest, Hint

from berth_host.config.errors import ConfigurationError, FieldErrorType, Finding, nearest

EXACT_HINTS: Final = "ExactQueueingHints"
"""Every change that turns a plugin's Filter from no to yes wakes the pods that the plugin rejected."""
_ASK: Final = Hint.ASK_PLUGIN

READERS: Final[Mapping[str, frozenset[str]]] = {
    EXACT_HINTS: frozenset(
        {
            "DynamicResources",
            "InterPodAffinity",
            "NodeAffinity",
            "NodeResourcesFit",
            "NodeVolumeLimits",
            "PodTopologySpread",
            "VolumeBinding",
            "VolumeRestrictions",
        }
    ),
}
"""By mend: the default plugins that are told when the mend is off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulation:
    """The differences of one version. `version`: empty without emulation. `off`: names of mends. `events`: by
    plugin, the events that the plugin of that version registers for, in place of those of the class."""

    version: str = ""
    off: frozenset[str] = frozenset()
    events: Mapping[str, tuple[EventInterest, ...]] = field(default_factory=dict)

    def told_to(self, plugin: str) -> dict[str, bool]:
        """Return the mends that `plugin` reads and that are off, as feature gates."""
        return {mend: False for mend in sorted(self.off) if plugin in READERS[mend]}


NO_EMULATION: Final = Emulation()
EMULATIONS: Final[Mapping[str, Emulation]] = {
    "1.36": Emulation(
        version="1.36",
        off=frozenset({EXACT_HINTS}),
        events={
            "InterPodAffinity": (
                EventInterest("Pod", ("add", "update.labels", "delete"), _ASK),
                EventInterest("Node", ("add", "update.labels"), _ASK),
            ),
            "PodTopologySpread": (
                EventInterest("Pod", ("add", "update.labels", "update.tolerations", "delete"), _ASK),
                EventInterest("Node", ("add", "delete", "update.labels", "update.taints"), _ASK),
            ),
            "VolumeRestrictions": (
                EventInterest("Pod", ("delete",), _ASK),
                EventInterest("PersistentVolumeClaim", ("add",), _ASK),
                EventInterest("Node", ("add",)),
            ),
            "NodeVolumeLimits": (
                EventInterest("storage.k8s.io/CSINode", ("add",)),
                EventInterest("storage.k8s.io/CSINode", ("update",), _ASK),
                EventInterest("Pod", ("delete",), _ASK),
                EventInterest("PersistentVolumeClaim", ("add",), _ASK),
                EventInterest("storage.k8s.io/VolumeAttachment", ("delete",), _ASK),
            ),
            "VolumeBinding": (
                EventInterest("storage.k8s.io/StorageClass", ("add", "update"), _ASK),
                EventInterest("PersistentVolumeClaim", ("add", "update"), _ASK),
                EventInterest("PersistentVolume", ("add", "update")),
                EventInterest("Node", ("add", "update.labels")),
                EventInterest("storage.k8s.io/CSINode", ("add", "update"), _ASK),
                EventInterest("storage.k8s.io/CSIDriver", ("update",), _ASK),
                EventInterest("storage.k8s.io/CSIStorageCapacity", ("add", "update"), _ASK),
            ),
            "DynamicResources": (
                EventInterest("Node", ("add", "update.labels", "update.allocatable")),
                EventInterest("resource.k8s.io/ResourceClaim", ("add", "update"), _ASK),
                EventInterest("Pod", ("update.generatedResourceClaim",), _ASK),
                EventInterest("resource.k8s.io/DeviceClass", ("add", "update")),
                EventInterest("resource.k8s.io/ResourceSlice", ("add", "update")),
            ),
        },
    ),
}


def emulation_of(version: str, *, source: str) -> Emulation:
    """Return the differences of a version such as `1.36`; of an empty one: none.

    Raises ConfigurationError for a version that is not in the table.
    """
    if not version:
        return NO_EMULATION
    found = EMULATIONS.get(version)
    if found is None:
        known = ", ".join(EMULATIONS)
        finding = Finding(
            f"cannot emulate kube-scheduler {version}: use one of {known}",
            field="emulatedVersion",
            type=FieldErrorType.NOT_SUPPORTED,
            suggestion=nearest(version, EMULATIONS),
        )
        raise ConfigurationError("validation", [finding], source=source)
    return found
