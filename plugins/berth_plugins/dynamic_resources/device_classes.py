"""`DeviceClasses`: device classes by name, and by the extended resource that they provide.

Used by DynamicResources, and by NodeResourcesFit, which leaves these resources to DynamicResources.

Source: KEP-5004; `dynamicresources/extended/cache.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from berth_sdk.handle import ObjectReader
from berth_sdk.kube_object import KubeObject

from berth_plugins.objects.resource_names import is_extended

CLASSES: Final = "resource.k8s.io/deviceclasses"
CLASS_KIND: Final = "resource.k8s.io/DeviceClass"
IMPLICIT_PREFIX: Final = "deviceclass.resource.kubernetes.io/"


class DeviceClasses:
    """The device classes, read again when any of them has changed; there are few. `open_reader` is called at
    the first use: a handle cannot read before the host has started.
    """

    def __init__(self, open_reader: Callable[[], ObjectReader]) -> None:
        self._open = open_reader
        self._reader: ObjectReader | None = None
        self._version: int | None = None
        self._by_name: dict[str, KubeObject] = {}
        self._by_resource: dict[str, str] = {}

    @property
    def version(self) -> int:
        """A number that changes with any change of a class."""
        if self._reader is None:
            self._reader = self._open()
        return self._reader.version

    def __bool__(self) -> bool:
        """Return True if there is any class."""
        self._refresh()
        return bool(self._by_name)

    def get(self, name: str) -> KubeObject | None:
        """Return the class with this name, or None."""
        self._refresh()
        return self._by_name.get(name)

    def serving(self, resource: str) -> str | None:
        """Return the name of the class that provides this extended resource, or None."""
        self._refresh()
        if not self._by_name:
            return None
        if resource.startswith(IMPLICIT_PREFIX):
            name = resource.removeprefix(IMPLICIT_PREFIX)
            return name if name in self._by_name else None
        return self._by_resource.get(resource)

    def _refresh(self) -> None:
        version = self.version
        if version == self._version or self._reader is None:
            return
        self._version = version
        classes = self._reader.list()
        self._by_name = {item.ref.name: item for item in classes}
        self._by_resource = {}
        # Of several classes for one resource the youngest counts, and of equally old ones the first by name.
        by_name = sorted(classes, key=lambda item: item.ref.name, reverse=True)
        for item in sorted(by_name, key=lambda item: item.get("metadata.creationTimestamp") or ""):
            resource = item.get("spec.extendedResourceName")
            if resource:
                self._by_resource[resource] = item.ref.name


def may_be_served(resource: str) -> bool:
    """Return True if a class can provide the resource at all."""
    return resource.startswith(IMPLICIT_PREFIX) or is_extended(resource)
