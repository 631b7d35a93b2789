"""A plugin that notes which reservations were made and given back."""

from __future__ import annotations

from typing import ClassVar

from berth_sdk.extension_points import Plugin
from berth_sdk.pod import Pod
from berth_sdk.status import Status


class Ledger(Plugin):
    """Names of pods, one for each Reserve and Unreserve."""

    reserved: ClassVar[list[str]] = []
    unreserved: ClassVar[list[str]] = []

    @classmethod
    def empty(cls) -> None:
        """Before a test."""
        cls.reserved.clear()
        cls.unreserved.clear()

    def reserve(self, state: object, pod: Pod, node_name: str) -> Status:
        """Counts."""
        self.reserved.append(pod.name)
        return Status.success()

    def unreserve(self, state: object, pod: Pod, node_name: str) -> None:
        """Counts."""
        self.unreserved.append(pod.name)
