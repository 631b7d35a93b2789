"""`Answers`: runs the plugins of a profile at PreFilter, Filter, PreScore and Score.

    AskEveryone   calls every plugin for every pod
    KeepAnswers   uses kept answers about an equal pod again while they hold (`kept`)

`app` chooses one. `Framework` and the scheduler depend on neither. Both give the same verdicts, reasons and
scores.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Protocol

from berth_sdk.extension_points import NoConcern
from berth_sdk.kept.follows import concern
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable

from berth_host.attempt.cycle import Cycle
from berth_host.framework.filtering import PreFiltering, Rows, candidates, nominated_pass, passed_by
from berth_host.framework.score_table import ScoreTable, WeightedPlugin
from berth_host.framework.scoring import score_nodes
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NominatedPods
from berth_host.model.pre_filter_outcome import PreFilterOutcome
from berth_host.rpc.client import PluginClient

Clients = tuple[PluginClient, ...]


class OneStep(Protocol):
    """The short way through Filter, PreScore and Score, if all answers about a pod are merged ones.

    `filters`, `pre_score`: the plugins of Filter and PreScore. `skipped`: the plugins that skip Score.
    """

    @property
    def filters(self) -> Clients:
        """The plugins of Filter, in order."""
        ...

    @property
    def pre_score(self) -> Clients:
        """The plugins of PreScore, in order."""
        ...

    @property
    def skipped(self) -> tuple[str, ...]:
        """The plugins that skip Score."""
        ...

    def scores_with(self, pre_score: Clients, score: tuple[WeightedPlugin, ...]) -> bool:
        """Return True if these are the plugins of PreScore and Score."""
        ...

    async def filter(self, cycle: Cycle, statuses: NodeStatuses, rows: Rows) -> Rows:
        """Run Filter without nominated pods, as `Answers.filter` does."""
        ...

    async def score(self, cycle: Cycle, nodes: NodeTable) -> ScoreTable | None:
        """Run PreScore and Score, as `Answers.score` does. Return None where `Answers.score` has to."""
        ...


class Answers(Protocol):
    """The answers of one profile's plugins. `clients`, `pre_score`, `score`: the plugins to ask, in
    configured order."""

    @property
    def keeps(self) -> bool:
        """True if answers are kept."""
        ...

    async def pre_filter(self, clients: Clients, cycle: Cycle) -> PreFilterOutcome:
        """Run PreFilter over all nodes. A plugin that answers Skip is not called at this cycle's Filter."""
        ...

    async def filter(
        self,
        clients: Clients,
        pre_score: Clients,
        cycle: Cycle,
        statuses: NodeStatuses,
        rows: Rows,
        nominated: NominatedPods,
    ) -> Rows:
        """Return the rows of `rows` (positions in `statuses.table`) that all plugins pass.

        Writes to `statuses` why the other rows do not pass.

        `pre_score`: the plugins that decide which plugins score; read by callers that score early.
        """
        ...

    async def score(
        self, pre_score: Clients, score: tuple[WeightedPlugin, ...], cycle: Cycle, nodes: NodeTable
    ) -> ScoreTable | Status:
        """Run PreScore, Score and NormalizeScore over the rows of `nodes`. A returned Status is an error."""
        ...

    def skipping_score(self, plugins: frozenset[str], cycle: Cycle) -> frozenset[str]:
        """Return those of `plugins`, which skip the cycle, that skip Score. The others score every node 0."""
        ...

    def row_signature(self, clients: Clients, pod: Pod, nodes: NodeTable) -> Hashable | None:
        """Return a signature of the pod: about pods with equal ones all `clients` answer the same as long as
        the rows stay the same (`nodes`, the whole snapshot).

        None: some client's answers follow from more, or are not declared.
        """
        ...

    def versions_of_rows(self) -> Hashable:
        """Return the versions of the objects that plugins which judge row by row read beside the tables."""
        ...

    def one_step(self, cycle: Cycle) -> OneStep | None:
        """Return the short way of the cycle's pod after PreFilter; None: there is none for this pod.

        For profiles whose plugins are asked about every pod.
        """
        ...


class AskEveryone:
    """The answers of plugins that are called for every pod, about every node."""

    keeps: Final = False

    async def pre_filter(self, clients: Clients, cycle: Cycle) -> PreFilterOutcome:
        """Run PreFilter; see `Answers`."""
        running = PreFiltering(cycle)
        for client in clients:
            answer = await client.pre_filter(cycle, cycle.nodes)
            outcome = running.take(client, answer, lasting=_is_lasting(client, cycle))
            if outcome is not None:
                return outcome
        return running.outcome()

    async def filter(
        self,
        clients: Clients,
        pre_score: Clients,
        cycle: Cycle,
        statuses: NodeStatuses,
        rows: Rows,
        nominated: NominatedPods,
    ) -> Rows:
        """Run Filter; see `Answers`."""
        if nominated:
            rows = await nominated_pass(clients, cycle, statuses, rows, nominated)
        for client in clients:
            if not len(rows):
                break
            verdicts = await client.filter(cycle, candidates(statuses, rows))
            rows = passed_by(client, verdicts, statuses, rows)
        return rows

    async def score(
        self, pre_score: Clients, score: tuple[WeightedPlugin, ...], cycle: Cycle, nodes: NodeTable
    ) -> ScoreTable | Status:
        """Run PreScore, Score and NormalizeScore; see `Answers`."""
        return await score_nodes(pre_score, score, cycle, nodes)

    def skipping_score(self, plugins: frozenset[str], cycle: Cycle) -> frozenset[str]:
        """Return all: plugins with `NoConcern.NEUTRAL` are called at PreScore and Score."""
        return plugins

    def row_signature(self, clients: Clients, pod: Pod, nodes: NodeTable) -> None:
        """Return None: no answer is kept."""
        return

    def versions_of_rows(self) -> Hashable:
        """Return (): no answer is kept."""
        return ()

    def one_step(self, cycle: Cycle) -> None:
        """Return None: every plugin is called."""
        return


def _is_lasting(client: PluginClient, cycle: Cycle) -> bool:
    """Return True if an in-process plugin signs that it has no concern with the pod for the whole cycle."""
    sign = None if client.local is None or client.is_scoped else client.local.follows.sign
    if sign is None:
        return False
    try:
        return concern(sign(cycle.pod, cycle.nodes)) is NoConcern.CYCLE
    except Exception:  # noqa: BLE001 (the plugin fails again where it is called)
        return False
