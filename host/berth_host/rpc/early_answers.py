"""Early answers -> the answers about the nodes of a later call.

Called by `PluginClient` at Filter, PreScore and Score. A cycle may ask Filter several times (a nominated
node first, samples later), so the scores of a cycle may be in several answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from berth_sdk.results import PreFilterResult
from berth_sdk.status import Code, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.attempt.call_record import EarlyScores, EarlyVerdicts, Part

Rows = NDArray[np.intp]


def keep_early(part: Part, nodes: NodeTable, result: PreFilterResult) -> None:
    """Keep the verdicts and scores that came with PreFilter in the cycle, if they may be used."""
    skips = result.status.code is Code.SKIP
    if not skips and not result.status.is_success:
        return
    rows, verdicts, scores = nodes.slots, result.early_filter, result.early_scores
    if result.eligible is not None:
        # Early answers hold only for eligible nodes; Filter may still be called about the nominated node.
        left = sorted(position for name in result.eligible if (position := nodes.position(name)) is not None)
        rows = rows[left]
        verdicts = None if verdicts is None else verdicts.take(np.asarray(left, dtype=np.intp))
        scores = None if scores is None else scores[left]
    if verdicts is not None and not skips:
        part.early_verdicts = EarlyVerdicts(rows, verdicts)
    if result.skip_score:
        part.skips_score = True
    elif scores is not None:
        keep_scores(part, rows, scores)


def keep_scores(part: Part, rows: Rows, scores: NDArray[np.int64]) -> None:
    """Keep scores for the slots `rows` that came with another call than Score."""
    if part.early_scores is None:
        part.early_scores = []
    part.early_scores.append(EarlyScores(rows, scores))


def early_scores(answers: Sequence[EarlyScores], rows: Rows) -> NDArray[np.int64] | None:
    """Return int64[n] for the slots `rows`; None if some slot has no score: then Score has to be called.

    The latest answer about a slot counts.
    """
    if not answers or not len(rows):
        return None
    if len(answers) == 1 and np.array_equal(answers[0].rows, rows):
        return answers[0].scores
    known = np.concatenate([answer.rows for answer in answers])
    scores = np.concatenate([answer.scores for answer in answers])
    places = _places(known, rows)
    return None if places is None else scores[places]


def early_verdicts(answer: EarlyVerdicts | None, rows: Rows) -> Verdicts | None:
    """Return one verdict for each of the slots `rows`; None if some slot has none."""
    if answer is None:
        return None
    if np.array_equal(answer.rows, rows):
        return answer.verdicts
    places = _places(answer.rows, rows)
    return None if places is None else answer.verdicts.take(places)


def _places(known: Rows, rows: Rows) -> NDArray[np.intp] | None:
    """Return the last position of each of `rows` in `known`; None if one is missing."""
    if not len(rows):
        return rows
    if not len(known):
        return None
    # Slots are dense, so a table by slot takes less time than a search.
    place_of = np.full(int(max(known.max(), rows.max())) + 1, -1, dtype=np.intp)
    place_of[known] = np.arange(len(known), dtype=np.intp)
    places: NDArray[np.intp] = place_of[rows]
    return None if places.min() < 0 else places
