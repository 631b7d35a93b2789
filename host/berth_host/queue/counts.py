"""`QueueCounts`: the numbers and ages of pods and entities in each part of the queue, for metrics.

Source: kube-scheduler `metrics/metric_recorder.go` (QueuedEntitiesRecorder), v1.37.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf
from typing import Final

from berth_host.queue.group_entries import Aside, GroupEntries
from berth_host.queue.places import Place, Places
from berth_host.queue.queued_pod import QueuedEntity

GATED: Final = "gated"
NO_PLUGIN: Final = "none"
"""The label of pods that no plugin keeps in the queue."""
_NO_CAUSE: Final = ("", "")


class QueueCounts:
    """The numbers as of now. The parts are `active`, `backoff`, `gated` and `unschedulable`; for pods also
    `incomplete` and `pending`.
    """

    def __init__(self, places: Places, groups: GroupEntries) -> None:
        self._places = places
        self._groups = groups

    def pods(self) -> dict[str, int]:
        """Return the number of pods by part, members of groups included."""
        found = dict.fromkeys(_PARTS, 0)
        for part, entity in self.entries():
            found[part] += len(entity.pods())
        for which in Aside:
            if count := self._groups.aside_count(which):
                found[which.value] = count
        return found

    def by_plugin(self) -> Counter[tuple[str, str]]:
        """Return the number of pods by part and by the plugin that keeps them there; without zeros.

        The plugin gates the entity, or the pod's last attempt failed with it; NO_PLUGIN for pods that were
        not tried yet, whose attempt failed without a plugin, or that wait for their group.
        """
        found = Counter[tuple[str, str]]()
        for part, entity in self.entries():
            gate = entity.gating_plugin
            for info in entity.pods():
                found[part, gate or (info.cause or _NO_CAUSE)[0] or NO_PLUGIN] += 1
        for which in Aside:
            if count := self._groups.aside_count(which):
                found[which.value, NO_PLUGIN] = count
        return found

    def oldest(self) -> dict[str, float]:
        """Return by part the Unix seconds at which the oldest of its pods was created.

        Without the parts that have no pod with a creation time.
        """
        found: dict[str, float] = {}
        for part, entity in self.entries():
            for info in entity.pods():
                created_at_s = info.pod.created_at_s
                if created_at_s is not None and created_at_s < found.get(part, inf):
                    found[part] = created_at_s
        return found

    def entities(self) -> Counter[tuple[str, str]]:
        """Return the number of entities by part and type; without zeros. Types: see `QueuedEntity.type`."""
        return Counter((part, entity.type) for part, entity in self.entries())

    def entries(self) -> Iterator[tuple[str, QueuedEntity]]:
        """Yield every queued entity with its part. Members of groups that are in no entry are left out."""
        places = self._places
        for entity in places.active:
            yield Place.ACTIVE.value, entity
        for heap in (places.backoff.rejected(), places.backoff.failed()):
            for entity in heap:
                yield Place.BACKOFF.value, entity
        for entity in places.pool:
            yield GATED if entity.is_gated else Place.POOL.value, entity


_PARTS: Final = (Place.ACTIVE.value, Place.BACKOFF.value, GATED, Place.POOL.value)
