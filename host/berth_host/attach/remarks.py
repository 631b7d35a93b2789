"""`Remarks`: warnings about an instance, each once, and no more than a person reads.

An instance chooses what it says, and how often: an introduction of 4 MiB has room for half a million values
that the host does not know, each of them a line of its log otherwise. Used by `handshake` and `Attachment`.
"""

from __future__ import annotations

from typing import Final

from berth_host.rpc.served.statuses import cut, plain

MAX_REMARKS: Final = 32
MAX_REMARK_BYTES: Final = 512
MORE: Final = "more is remarked about it, and left out here"


class Remarks:
    """`texts`: in the order in which they came; the last says so where some are missing."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, text: str) -> None:
        """Keep it, where it is new and there is room."""
        if len(self.texts) > MAX_REMARKS:
            return
        text = plain(cut(text, MAX_REMARK_BYTES))
        if text not in self.texts:
            self.texts.append(text if len(self.texts) < MAX_REMARKS else MORE)
