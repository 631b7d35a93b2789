"""`KeptResults`: what the search found for one wish on each node, by slot, and how long that holds.

A result holds while the node's stamp and places (`SeenPools`) are those of the search.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from berth_plugins.dynamic_resources.attempt import FoundDevices
from berth_plugins.dynamic_resources.inventory import SeenPools

_NEVER: Final = -1


class KeptResults:
    """The results for one wish. `found` (object[slots]): the devices; None: no search, or nothing found.
    `is_rejected` (bool[slots]): a search found nothing. `scores` (int64[slots]): points of `found`.
    """

    __slots__ = ("_places", "_stamps", "found", "is_rejected", "scores")

    def __init__(self, slot_count: int) -> None:
        self.found: NDArray[np.object_] = np.full(slot_count, None, dtype=np.object_)
        self.is_rejected = np.zeros(slot_count, dtype=np.bool_)
        self.scores = np.zeros(slot_count, dtype=np.int64)
        self._stamps = np.full(slot_count, _NEVER, dtype=np.int64)
        self._places: NDArray[np.uint8] | None = None

    def resize(self, slot_count: int) -> None:
        """Hold so many slots at least. New ones have no result."""
        more = slot_count - len(self._stamps)
        if more <= 0:
            return
        self.found = np.concatenate([self.found, np.full(more, None, dtype=np.object_)])
        self.is_rejected = np.concatenate([self.is_rejected, np.zeros(more, dtype=np.bool_)])
        self.scores = np.concatenate([self.scores, np.zeros(more, dtype=np.int64)])
        self._stamps = np.concatenate([self._stamps, np.full(more, _NEVER, dtype=np.int64)])
        if self._places is not None:
            none = np.zeros((more, self._places.shape[1]), dtype=np.uint8)
            self._places = np.concatenate([self._places, none])

    def stale(self, rows: NDArray[np.intp], slots: NDArray[np.intp], seen: SeenPools) -> NDArray[np.intp]:
        """Return those of `rows` without a result that holds. `slots`: of all rows of the table."""
        own = slots[rows]
        places = self._places_like(seen)
        is_stale = self._stamps[own] != seen.stamps[rows]
        if places is not None and seen.places is not None:
            is_stale |= (places[own] != seen.places[rows]).any(axis=1)
        found: NDArray[np.intp] = rows[is_stale]
        return found

    def put(
        self, rows: NDArray[np.intp], slots: NDArray[np.intp], seen: SeenPools, found: FoundDevices | None
    ) -> None:
        """Keep what a search found for `rows`. None: nothing."""
        own = slots[rows]
        self.found[own] = found
        self.is_rejected[own] = found is None
        self.scores[own] = 0 if found is None else found.score
        # Another search may have run since `stale`, and have seen other selectors.
        places = self._places_like(seen)
        self._stamps[own] = seen.stamps[rows]
        if places is not None and seen.places is not None:
            places[own] = seen.places[rows]

    def _places_like(self, seen: SeenPools) -> NDArray[np.uint8] | None:
        """Return the places of all slots, in codes as long as those seen now; None: no pool has a selector.

        No result holds where the codes had another length: they were about other selectors.
        """
        if seen.places is None:
            return None
        width = seen.places.shape[1]
        if self._places is None or self._places.shape[1] != width:
            self._places = np.zeros((len(self._stamps), width), dtype=np.uint8)
            self._stamps[:] = _NEVER
        return self._places
