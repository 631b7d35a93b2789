"""`HintAnswer`: the answer of a plugin's QueueingHint, or the fact that the call failed."""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias


class NoHint(Enum):
    """The type of NO_HINT."""

    NO_HINT = "no hint"


NO_HINT: Final = NoHint.NO_HINT
"""The call failed: the event may help, so that no pod is forgotten."""
HintAnswer: TypeAlias = bool | NoHint
"""True: the event may help the pod."""
