"""`PageLimit`: how many objects a list asks for at once, by the bytes of the pages before.

Used by `informer`, `calls` and `copying`. Objects may have 1.5 MB each, so a page of a fixed number of them
could take more memory than the host may have. The first page is small; a page that grows beyond MOST_BYTES
while it is read is given up (`session.AnswerTooLargeError`), and asked for again with a lower limit.
"""

from __future__ import annotations

from typing import Final

WANTED_BYTES: Final = 8 * 2**20
"""The size of a page, which the limit aims at: 500 objects of 16 KiB."""
MOST_BYTES: Final = 2 * WANTED_BYTES
"""The size at which a page is given up, unless it has one object."""
FIRST: Final = 50
"""Objects of the first page, about whose sizes nothing is known."""
_GROWTH: Final = 10
_SHRINKAGE: Final = 4


class PageLimit:
    """The limit of one list. `now`: objects to ask for. `was_lowered`: the objects are large."""

    def __init__(self, most: int) -> None:
        """Begin a list. `most`: objects in a page, at most."""
        self._most = most
        self.now = min(FIRST, most)
        self.was_lowered = False

    @property
    def most_bytes(self) -> int:
        """The bytes at which the page is given up; 0 for no bound, as a page of one object cannot shrink."""
        return MOST_BYTES if self.now > 1 else 0

    def came(self, size_bytes: int, count: int) -> None:
        """Note a page of `count` objects."""
        if not count:
            return
        fitting = max(1, WANTED_BYTES * count // max(size_bytes, 1))
        self.was_lowered = self.was_lowered or fitting < self._most
        # Objects in the order of their names may be small for long and large then.
        self.now = min(fitting, self.now * _GROWTH, self._most)

    def was_too_large(self) -> None:
        """Note that a page exceeded `most_bytes`."""
        self.was_lowered = True
        self.now = max(1, self.now // _SHRINKAGE)
