"""Where pods would go, also on nodes that do not exist yet: the answers.

`questions.simulating` makes them, and the query service sends them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

EXISTING: Final = ""
"""The template name that stands for the nodes that exist."""


@dataclass(frozen=True, slots=True)
class Rejections:
    """One reason of one plugin, and the number of nodes that it is about. `plugin` "": the scheduler."""

    plugin: str
    reason: str
    node_count: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on the nodes of one template, or (EXISTING) on those that exist.

    `rejections`: why the pod does not fit on the others, most nodes first.
    """

    template: str
    fitting_count: int
    rejections: Sequence[Rejections]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The answer about one pod: a node that exists, the node `ordinal` of `template`, or `message`.

    `index`: the pod's position in the question. `pod`: `namespace/name`. `node_name`, `template`: ""
    for none. `message`: why the pod gets no node, as in its condition.
    """

    index: int
    pod: str
    node_name: str = ""
    template: str = ""
    ordinal: int = 0
    message: str = ""
    verdicts: Sequence[Verdict] = ()

    @property
    def is_placed(self) -> bool:
        """True if the pod gets a node."""
        return bool(self.node_name or self.template)


@dataclass(frozen=True, slots=True)
class TemplateUse:
    """The use of one template: the number of its nodes with pods of the question, and of these pods."""

    template: str
    used_count: int
    pod_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSummary:
    """The sums of an answer. `slice_count`: how often scheduling was held up; `held_s`: how many seconds.

    `notes`: what made the answers less exact, a sentence each, with the cure.
    """

    templates: Sequence[TemplateUse]
    placed_count: int
    pending_count: int
    slice_count: int
    held_s: float
    notes: Sequence[str] = ()
