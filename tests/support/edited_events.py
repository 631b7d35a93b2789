"""TaintToleration with other `events`, for tests of which declaration the queue uses."""

from __future__ import annotations

from collections.abc import Sequence

from berth_plugins import taint_toleration
from berth_sdk.events import EventInterest, Hint


class TaintToleration(taint_toleration.TaintToleration):
    """Tries its pods again whenever a node's labels change, and not when the node loses a taint."""

    events: Sequence[EventInterest] | None = (
        EventInterest("Node", ("update.labels",)),
        EventInterest("Pod", ("update.tolerations",), Hint.ASK_PLUGIN),
    )
