"""OutsideLoad: prefers the nodes with the least load, as a server outside tells it.

GET `server` (an argument) answers {"node-1": 70, ...}: the load of each node in percent. While the server has
not answered for a minute, the class adds nothing to the scores.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any

from berth_sdk import DependsOn, Handle, Plugin, PluginArgsError, Refresher, ScoreNormalization, Status

LOAD = "load"


class OutsideLoad(Plugin):
    """Scores a node by its load: 100 for none, 0 for 100 % and for a node that the server does not name."""

    depends_on = DependsOn.OTHER
    normalization = ScoreNormalization.NONE

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        if not str(args.get("server", "")).startswith(("http://", "https://")):
            raise PluginArgsError("server: must be the http or https address that tells the load")
        self.load = Refresher(self._read, every_s=float(args.get("everySeconds", 5)), limit_s=60)

    def pre_score(self, state: Any, pod: Any, nodes: Any) -> Status:
        """Skip without a recent load. All nodes of a cycle get their score from the same one."""
        state.write(LOAD, load := self.load.value)
        return Status.skip() if load is None else Status.success()

    def score(self, state: Any, pod: Any, node: Any) -> int:
        """Return 100 less the load in percent."""
        return 100 - min(max(int(state.read(LOAD).get(node.name, 100)), 0), 100)

    def _read(self) -> dict[str, float]:
        with urllib.request.urlopen(self.args["server"], timeout=2) as answer:
            return dict(json.load(answer))
