"""BlinkingLightScorer, the example of KEP-624: a node with more blinking lights gets a higher score.

A label of the node holds the number of its lights. There are far fewer lights than the 100 points of a score,
so `normalize` spreads the numbers over the whole range.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import PluginArgsError
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.status import MAX_NODE_SCORE
from berth_sdk.tables import NodeTable, NodeView
from numpy.typing import NDArray

DEFAULT_LABEL: Final = "example.com/blinking-lights"


class BlinkingLightScorer(Plugin):
    """Scores nodes by their number of lights. Arguments: `label`, the label that holds the number."""

    version = "1.0.0"
    depends_on = DependsOn.ROW

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._label = args.get("label", DEFAULT_LABEL)
        if not isinstance(self._label, str) or not self._label:
            raise PluginArgsError("label: must be the name of a label")

    def score(self, state: CycleState, pod: Pod, node: NodeView) -> int:
        """Return the number of lights; 0 if the label is not a number."""
        lights = node.labels.get(self._label, "")
        return int(lights) if lights.isdecimal() else 0

    def normalize(
        self, state: CycleState, pod: Pod, scores: NDArray[np.int64], nodes: NodeTable
    ) -> NDArray[np.int64]:
        """Scale the scores so that the node with the most lights gets 100."""
        highest = int(scores.max(initial=0))
        return scores * MAX_NODE_SCORE // highest if highest else scores
