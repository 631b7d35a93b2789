"""The kept verdicts and scores of one plugin, for later pods with an equal signature.

`runtime.plugin_runtime` uses them, in the host and in a served plugin's process. `follows` has the inputs of
an answer, and ends answers. Two forms:

    RowColumns     NODE, ROW, NODES   a number per node and pod signature; changed rows are asked again
    TableAnswers   TABLE              whole answers, dropped after any change

For in-process plugins the host keeps the answers of the first form itself, several plugins at a time
(`berth_host.framework.kept`), in the same columns.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn
from berth_sdk.kept.follows import BySignature, Follows, StaleSlots
from berth_sdk.kept.known_slots import NO_ROWS, KnownSlots
from berth_sdk.kept.row_contents import Alike, ContentAnswers, Reads
from berth_sdk.kept.status_codes import StatusCodes
from berth_sdk.pod import Pod
from berth_sdk.results import FilterResult
from berth_sdk.status import Verdicts
from berth_sdk.tables import NodeTable
from berth_sdk.tables.few import FEW
from berth_sdk.tables.node_columns import NodeColumns
from berth_sdk.tables.read_only import extended

T = TypeVar("T")
Rows = NDArray[np.intp]
MAX_SIGNATURES: Final = 64
_MAX_STATUSES: Final = 4096


class Missing:
    """The rows of a table that a plugin is asked about: those without a kept answer, and of rows that are
    alike the first.

    `rows`: their positions, ascending. `slots`: of all rows without an answer; None: the same rows. `alike`:
    these rows in groups. `contents`: by group.
    """

    __slots__ = ("alike", "contents", "rows", "slots")

    def __init__(
        self,
        rows: Rows,
        slots: Rows | None = None,
        alike: Alike | None = None,
        contents: Sequence[int] = (),
    ) -> None:
        self.rows = rows
        self.slots = slots
        self.alike = alike
        self.contents = contents

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, nodes: NodeTable) -> NodeTable:
        """Return these rows of the table."""
        return nodes if len(self.rows) == len(nodes) else nodes.take(self.rows)


class RowColumn:
    """One number per slot for one pod signature: a score, or the code of a status (0: success)."""

    __slots__ = (
        "_by_content",
        "_groups",
        "_known",
        "_numbers",
        "_read",
        "_read_rows",
        "_stale",
        "codes",
    )

    def __init__(
        self,
        dtype: type[np.signedinteger[Any]],
        by: DependsOn | None,
        reads: Reads | None = None,
        *,
        groups: bool = False,
    ) -> None:
        """Begin without answers.

        `by`: the part of a row that decides a number, NODE, ROW or NODES. `reads`: the columns that decide
        it; None: not declared. `groups`: many rows are compared with each other as well, because a question
        about fewer rows is cheaper, as with a served plugin.
        """
        self._stale = StaleSlots(by)
        self._known = KnownSlots()
        self._groups = groups
        self._by_content: ContentAnswers[int] | None = None if reads is None else ContentAnswers(reads)
        self._numbers: NDArray[Any] = np.zeros(0, dtype=dtype)
        self._read: NDArray[Any] | None = None
        self._read_rows: Rows | None = None
        self.codes = StatusCodes()

    def catch_up(self, columns: NodeColumns) -> None:
        """Forget the rows whose answers have ended since the last call."""
        if len(self._known) < columns.capacity:
            self._read = None
            self._known.grow(columns.capacity)
            self._numbers = extended(self._numbers, columns.capacity - len(self._numbers))
        stale = self._stale.since_last(columns)
        if stale is None:
            self._known.clear()
        elif stale:
            self._known.forget(stale)

    def missing(self, nodes: NodeTable) -> Missing:
        """Return the rows of `nodes` to ask about. Rows of a known content take over its number."""
        missing = self._known.missing(nodes)
        shared = self._by_content
        if shared is None or not len(missing) or not (self._groups or len(missing) <= FEW):
            return Missing(missing)
        slots = nodes.slots.take(missing)
        contents = shared.numbers(nodes.columns, slots.tolist())
        found = shared.find(contents)
        left = [at for at, number in enumerate(found) if number is None]
        if len(left) < len(found):
            known = [at for at, number in enumerate(found) if number is not None]
            here = slots.take(known)
            self._numbers[here] = [found[at] for at in known]
            self._known.learn(here, in_use=nodes.snapshot_size)
            self._read = None
            if not left:
                return Missing(NO_ROWS)
            missing, slots = missing.take(left), slots.take(left)
            contents = [contents[at] for at in left]
        alike = Alike(contents)
        first = alike.first
        return Missing(missing.take(first), slots, alike, [contents[at] for at in first.tolist()])

    def keep(self, nodes: NodeTable, missing: Missing, numbers: NDArray[Any]) -> None:
        """Keep `numbers`, one for each row of `missing`, which was returned for `nodes`."""
        slots = missing.slots
        if slots is None or missing.alike is None:
            slots = missing.of(nodes).slots
        else:
            if self._by_content is not None:
                self._by_content.keep(missing.contents, numbers.tolist())
            numbers = numbers.take(missing.alike.group)
        self._numbers[slots] = numbers
        self._known.learn(slots, in_use=nodes.snapshot_size)
        self._read = None

    def forget(self, nodes: NodeTable, missing: Missing) -> None:
        """Forget the answers that `keep` was given about these rows."""
        slots = missing.of(nodes).slots if missing.slots is None else missing.slots
        self._known.forget(slots.tolist())
        if self._by_content is not None:
            self._by_content.drop(missing.contents)

    def read(self, nodes: NodeTable) -> NDArray[Any]:
        """Return the number of each row; read-only, and valid until the next call, which writes to the same
        memory.

        The same array as in the call before, if nothing was written since and the rows are the same.
        """
        if not nodes.is_whole:
            return nodes.take_of(self._numbers)
        rows = nodes.columns.live_slots()
        if self._read is None or self._read_rows is not rows:
            self._read, self._read_rows = nodes.take_of(self._numbers), rows
        return self._read

    def keep_verdicts(self, nodes: NodeTable, missing: Missing, verdicts: Verdicts) -> None:
        """Keep verdicts as their codes."""
        if len(verdicts.statuses) == 1:
            self.keep(nodes, missing, np.zeros(len(missing), dtype=np.int32))
            return
        codes = np.asarray([self.codes.encode(status) for status in verdicts.statuses], dtype=np.int32)
        self.keep(nodes, missing, codes.take(verdicts.groups))

    def verdicts(self, nodes: NodeTable) -> Verdicts:
        """Return the verdict on each row."""
        if len(self.codes) == 1:
            return _feasible(len(nodes))
        return Verdicts(self.read(nodes), tuple(self.codes.statuses))


class RowColumns:
    """The columns of one plugin, by pod signature. `follows.depends_on`: NODE, ROW or NODES."""

    def __init__(
        self, dtype: type[np.signedinteger[Any]], follows: Follows, *, max_signatures: int = MAX_SIGNATURES
    ) -> None:
        self._dtype = dtype
        self._follows = follows
        self._columns: BySignature[RowColumn] = BySignature(max_signatures)

    def __len__(self) -> int:
        return len(self._columns)

    def column(self, state: CycleState, pod: Pod, nodes: NodeTable) -> RowColumn:
        """Return the column of pods with this signature, as of now, for the table that `nodes` is part of."""
        follows = self._follows
        # An object that changed does not tell which rows it concerns.
        versions = follows.versions()
        self._columns.as_of(versions)
        signature = follows.signature(state, pod, nodes, versions)
        if state.signed_at != versions:
            column = RowColumn(self._dtype, follows.depends_on, follows.reads)  # for this call alone
        else:
            known = self._columns.get(signature)
            if known is None or len(known.codes) > _MAX_STATUSES:
                known = RowColumn(self._dtype, follows.depends_on, follows.reads)
                self._columns.keep(signature, known)
            column = known
        column.catch_up(nodes.columns)
        return column


class TableAnswers(Generic[T]):
    """Whole answers of one plugin, by pod signature, each for one set of candidates."""

    def __init__(self, follows: Follows, *, max_signatures: int = MAX_SIGNATURES) -> None:
        self._follows = follows
        self._answers: BySignature[tuple[Rows, T]] = BySignature(max_signatures)

    def __len__(self) -> int:
        return len(self._answers)

    def find(self, state: CycleState, pod: Pod, nodes: NodeTable) -> T | None:
        """Return the answer about an equal pod and the same rows; None: none holds."""
        versions = self._follows.versions()
        if self._answers.as_of(_as_of(nodes, versions)) or not len(self._answers):
            return None
        found = self._answers.get(self._follows.signature(state, pod, nodes, versions))
        if found is None or state.signed_at != versions:
            return None
        rows, answer = found
        return answer if rows is nodes.slots or np.array_equal(rows, nodes.slots) else None

    def keep(self, state: CycleState, pod: Pod, nodes: NodeTable, answer: T) -> None:
        """Keep an answer given right after `find` returned None, unless an object changed since the pod was
        signed.
        """
        versions = self._follows.versions()
        signature = self._follows.signature(state, pod, nodes, versions)
        if state.signed_at == versions and not self._answers.as_of(_as_of(nodes, versions)):
            self._answers.keep(signature, (nodes.slots, answer))


class KeptAnswers:
    """The kept answers of one plugin to Filter and Score; None: no answers are kept."""

    def __init__(self, follows: Follows, *, rows: bool = True) -> None:
        """`rows` False: the host keeps answers by row."""
        self.verdicts: RowColumns | TableAnswers[FilterResult] | None = None
        self.scores: RowColumns | TableAnswers[NDArray[np.int64]] | None = None
        if follows.by_row:
            if rows:
                self.verdicts, self.scores = RowColumns(np.int32, follows), RowColumns(np.int64, follows)
        elif follows.depends_on is DependsOn.TABLE and follows.is_readable:
            self.verdicts, self.scores = TableAnswers(follows), TableAnswers(follows)


@lru_cache(maxsize=8)
def _feasible(count: int) -> Verdicts:
    verdicts = Verdicts.feasible(count)
    verdicts.groups.flags.writeable = False
    return verdicts


def _as_of(nodes: NodeTable, versions: Hashable) -> Hashable:
    columns = nodes.columns
    return columns.identity, columns.version, versions
