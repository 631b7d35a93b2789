"""Gadgets: a custom resource with any fields, and a plugin that holds pods until their gadget is there."""

from __future__ import annotations

from typing import Any, Final

from berth_bench.versus.real_servers import RealServers
from berth_sdk.events import EventInterest
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.results import QueuedPod
from berth_sdk.status import Status
from support import custom_kinds

_GROUP: Final = "fuzzed.example.com"
KIND: Final = "Gadget"
VERSION: Final = f"{_GROUP}/v1"
_RESOURCE: Final = f"{_GROUP}/gadgets"
LABEL: Final = "gadget"
"""The pod's label with the name of its gadget."""
PROFILE: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- plugins: {multiPoint: {enabled: [{name: WaitsForGadget}]}}
"""
"""A configuration whose profile has the plugin."""
DOCUMENT: Final = f"""\
---
apiVersion: config.berth.io/v1alpha1
kind: BerthConfiguration
plugins:
- name: WaitsForGadget
  inProcess: {__name__}:WaitsForGadget
"""


class WaitsForGadget(Plugin):
    """Holds a pod with the label back until the gadget that it names is there."""

    needs = (Need.objects(_RESOURCE),)
    events = (EventInterest(f"gadgets.v1.{_GROUP}", ("add",)),)

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._gadgets = handle.objects(_RESOURCE)

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        name = pod.pod.labels.get(LABEL)
        if name is None or self._gadgets.get(name, pod.pod.namespace) is not None:
            return Status.success()
        return Status.unresolvable("the gadget is not there")


def install(servers: RealServers) -> None:
    """Make the API server serve gadgets, and let the scheduler's user see them."""
    definition = {"group": _GROUP, "version": "v1", "kind": KIND, "plural": "gadgets"}
    rule = {"apiGroups": [_GROUP], "resources": ["gadgets"], "verbs": ["get", "list", "watch"]}
    custom_kinds.install(servers, definition, [rule])
