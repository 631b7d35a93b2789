"""`Remarks`: a bounded list of distinct warnings about an instance.

The bound is needed because a handshake of 4 MiB may contain half a million unknown values, and each would be
a line of the log. Used by `handshake` and `Attachment`.
"""

from __future__ import annotations

from typing import Final

from berth_host.rpc.served.statuses import cut, plain

MAX_REMARKS: Final = 32
MAX_REMARK_BYTES: Final = 512
MORE: Final = "there are more warnings about it, which are left out here"


class Remarks:
    """The warnings. `texts`: in the order of their addition; the last one is MORE if some are left out."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, text: str) -> None:
        """Add a warning if it is new and the limit is not reached."""
        if len(self.texts) > MAX_REMARKS:
            return
        text = plain(cut(text, MAX_REMARK_BYTES))
        if text not in self.texts:
            self.texts.append(text if len(self.texts) < MAX_REMARKS else MORE)
