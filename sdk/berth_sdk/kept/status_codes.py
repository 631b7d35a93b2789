"""Statuses as small integers, for columns of verdicts, for both the SDK and the host."""

from __future__ import annotations

from typing import Final

from berth_sdk.status import SUCCESS, Status

_FIRST: Final = {SUCCESS: 0}


class StatusCodes:
    """A number for each status: 0 for SUCCESS, the next number for each new status. `statuses`: by number."""

    __slots__ = ("_codes", "statuses")

    def __init__(self) -> None:
        self.statuses: list[Status] = [SUCCESS]
        self._codes: dict[Status, int] = _FIRST.copy()  # a copy does not hash the statuses again

    def __len__(self) -> int:
        return len(self.statuses)

    def copy(self) -> StatusCodes:
        """Return a copy with the same numbers."""
        copied = StatusCodes()
        copied.statuses, copied._codes = self.statuses.copy(), self._codes.copy()
        return copied

    def encode(self, status: Status) -> int:
        """Return the number of a status."""
        code = self._codes.get(status)
        if code is None:
            code = self._codes[status] = len(self.statuses)
            self.statuses.append(status)
        return code
