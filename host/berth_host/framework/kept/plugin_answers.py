"""One plugin's answers about pods with one signature: its columns, and its answers to PreFilter and PreScore.

A column is made when the second pod with the signature comes, so that a single pod costs nothing. Called by
`keep_answers`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.kept.follows import BySignature
from berth_sdk.kept.kept_answers import Missing, RowColumn
from berth_sdk.results import PreFilterResult
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.attempt.cycle import Cycle
from berth_host.framework.kept.signing import Signer
from berth_host.rpc.scores import ScoreOutcome, normalize, zeros
from berth_host.rpc.validate import in_range

MAX_SIGNATURES: Final = 1024
MAX_COLUMNS: Final = 64
_MAX_STATUSES: Final = 4096


class SignatureAnswers:
    """The answers for one signature. `pre_filter`, `pre_score` and `state` (written at these two points) hold
    until a Node object changes.
    """

    __slots__ = (
        "_final",
        "filtered",
        "nodes_version",
        "pre_filter",
        "pre_score",
        "scored",
        "scores",
        "state",
        "verdicts",
    )

    def __init__(self) -> None:
        self.nodes_version = -1
        self.pre_filter: PreFilterResult | None = None
        self.pre_score: Status | None = None
        self.state: CycleState | None = None
        self.filtered = self.scored = False
        self.verdicts: RowColumn | None = None
        self.scores: RowColumn | None = None
        self._final: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def catch_up(self, nodes_version: int) -> None:
        """Forget the answers that a changed Node object may have changed."""
        if self.nodes_version != nodes_version:
            self.nodes_version = nodes_version
            self.pre_filter = self.pre_score = self.state = None

    def has_scores(self, nodes: NodeTable) -> bool:
        """Return True if the score of every row is kept."""
        if self.scores is None:
            return False
        self.scores.catch_up(nodes.columns)
        return not len(self.scores.missing(nodes))

    def normalized(self, signer: Signer, raw: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the final scores for `raw`; the same array while `raw` is the same. None if a score is out
        of range.
        """
        if self._final is None or self._final[0] is not raw:
            final = normalize(signer.client.descriptor.normalization, raw)
            if not in_range(final):
                return None
            self._final = raw, final
        return self._final[1]


class PluginAnswers:
    """One plugin's answers by signature."""

    def __init__(self, signer: Signer) -> None:
        self.signer = signer
        self._by_signature: BySignature[SignatureAnswers] = BySignature(MAX_SIGNATURES)
        self._with_columns: BySignature[SignatureAnswers] = BySignature(MAX_COLUMNS)
        """By identity, the answers that have columns: these take the memory."""

    def clear(self) -> None:
        """Forget all answers."""
        self._by_signature.clear()
        self._with_columns.clear()

    def of(self, signature: Hashable, nodes: NodeTable) -> SignatureAnswers:
        """Return the answers about pods with this signature."""
        answers = self._by_signature.get(signature)
        if answers is None:
            answers = SignatureAnswers()
            dropped = self._by_signature.keep(signature, answers)
            if dropped is not None:
                self._with_columns.drop(id(dropped))
        answers.catch_up(nodes.columns.nodes_version)
        return answers

    def verdict_column(self, answers: SignatureAnswers, nodes: NodeTable) -> RowColumn | None:
        """Return the column of kept verdicts, without those that changes of `nodes` ended.

        None for the first pod with the signature: the plugin is asked about all nodes, and nothing is kept.
        """
        column = answers.verdicts
        if column is None or len(column.codes) > _MAX_STATUSES:
            if not answers.filtered:
                answers.filtered = True
                return None
            column = answers.verdicts = self._new_column(np.int32)
            self._has_column(answers)
        column.catch_up(nodes.columns)
        return column

    def own_verdicts(self, answers: SignatureAnswers, nodes: NodeTable) -> OwnVerdicts | None:
        """Return the kept verdicts on `nodes`; None for the first pod with the signature."""
        column = self.verdict_column(answers, nodes)
        return None if column is None else OwnVerdicts(self, column, nodes)

    def keep_verdicts(
        self, column: RowColumn, nodes: NodeTable, missing: Missing, found: Verdicts
    ) -> Verdicts:
        """Keep `found`, the verdicts on the `missing` rows of `nodes`. Return those on all rows."""
        column.keep_verdicts(nodes, missing, found)
        verdicts = column.verdicts(nodes)
        failed = self.signer.client.is_failing
        if failed or not all(one.is_success or one.is_rejected for one in found.statuses):
            # An error, or a policy's stand-in for it, is no answer about the row.
            column.forget(nodes, missing)
        return verdicts

    async def score(self, answers: SignatureAnswers, cycle: Cycle, nodes: NodeTable) -> ScoreOutcome:
        """Return the scores of `nodes`. The plugin is asked about rows without a kept score."""
        client = self.signer.client
        column = answers.scores
        if column is None:
            if not answers.scored:
                answers.scored = True
                return await client.score(cycle, nodes)
            column = answers.scores = self._new_column(np.int64)
            self._has_column(answers)
        column.catch_up(nodes.columns)
        missing = column.missing(nodes)
        if len(missing):
            outcome = await client.score(cycle, missing.of(nodes), raw_only=True)
            if outcome.stands_in:
                return zeros(len(nodes), stands_in=True)
            if not outcome.is_answer or client.is_failing:
                return await client.score(cycle, nodes)
            column.keep(nodes, missing, outcome.raw)
        raw = column.read(nodes)
        final = answers.normalized(self.signer, raw)
        if final is None:
            return await client.score(cycle, nodes)  # where every failure has its words and its policy
        return ScoreOutcome(_SUCCESS, raw, final)

    def _new_column(self, dtype: type[np.signedinteger[Any]]) -> RowColumn:
        client = self.signer.client
        descriptor = client.descriptor
        return RowColumn(dtype, descriptor.depends_on, descriptor.reads, groups=client.is_served)

    def _has_column(self, answers: SignatureAnswers) -> None:
        dropped = self._with_columns.keep(id(answers), answers)
        if dropped is not None:
            dropped.verdicts = dropped.scores = None
            dropped.filtered = dropped.scored = False


class OwnVerdicts:
    """One plugin's kept verdicts on `nodes`. `asked`: the rows without a kept verdict; None: no row."""

    __slots__ = ("_column", "_memory", "_missing", "_nodes", "asked")

    def __init__(self, memory: PluginAnswers, column: RowColumn, nodes: NodeTable) -> None:
        self._memory = memory
        self._column = column
        self._nodes = nodes
        self._missing = column.missing(nodes)
        self.asked = self._missing.of(nodes) if len(self._missing) else None

    def known(self) -> Verdicts:
        """Return the verdicts on all rows, where none is missing."""
        return self._column.verdicts(self._nodes)

    def with_found(self, found: Verdicts) -> Verdicts:
        """Keep `found`, the verdicts on the rows `asked`. Return those on all rows."""
        return self._memory.keep_verdicts(self._column, self._nodes, self._missing, found)


_SUCCESS: Final = Status.success()
