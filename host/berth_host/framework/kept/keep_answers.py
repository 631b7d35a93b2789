"""`KeepAnswers`: uses earlier answers again while they hold, and asks plugins about the rest.

    first pod of a kind              answers by plugin and signature (`plugin_answers`)
    next pod, equal for all plugins  merged verdicts and summed scores as well (`merged_answers`)
    member of a group in a placement, from the second equal one on: merged verdicts and summed scores alone

No answer ends after a time: changes of the tables end answers. The answers of a served plugin are kept if it
declares what they follow from (`PluginClient.follows`). They end with its instance: all is kept anew when
another instance is active, or when calls to the active one are refused. Made by `app`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Coroutine, Hashable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, ExtensionPoint, NoConcern
from berth_sdk.kept.follows import BySignature, Follows, JointVersions, concern
from berth_sdk.pod import Pod
from berth_sdk.results import PreFilterResult
from berth_sdk.status import Code, Status, Verdicts
from berth_sdk.tables import NodeTable

from berth_host.attempt.cycle import Cycle
from berth_host.framework.answers import AskEveryone
from berth_host.framework.filtering import PreFiltering, Rows, candidates, nominated_pass, passed_by
from berth_host.framework.kept.judging_early import judge_early
from berth_host.framework.kept.merged_answers import AnswersAboutNodes, InPlacement, MergedAnswers
from berth_host.framework.kept.one_step import Clients, OneStep, Skips
from berth_host.framework.kept.plugin_answers import OwnVerdicts, PluginAnswers, SignatureAnswers
from berth_host.framework.kept.signing import OF_PODS, Signers
from berth_host.framework.score_table import PluginScores, ScoreTable, WeightedPlugin
from berth_host.framework.scoring import (
    ScoreRoles,
    ask_scores,
    note_pre_score,
    pre_score_answers,
    put_together,
)
from berth_host.metrics.series import instant_s
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NominatedPods
from berth_host.model.pre_filter_outcome import PASSED, PreFilterOutcome
from berth_host.rpc.client import PluginClient
from berth_host.rpc.scores import ScoreOutcome

Instances: TypeAlias = tuple[Follows | None, ...]
"""The inputs of each served plugin's answers, at its active instance. None: its answers are not kept."""
MOST_SEEN: Final = 4096
LEAST_KNOWN: Final = 64
MOST_KNOWN: Final = 512
_BYTES_KNOWN: Final = 128 << 20
_BYTES_PER_NODE: Final = 110
"""The bytes, roughly, that the merged answers of one kind of pods take for each node."""


class KeptForPod:
    """The kept answers that hold for one cycle's pod.

    `signatures`: by plugin. `merged`: the plugins whose answers are put together in `known`, which is None
    for the first pod of its kind. `states`: cycle state of the plugins whose answers are kept. `served`: the
    instances of served plugins at the begin of the cycle. `filters`: the Filter plugins, if the verdicts on
    all nodes were merged ones.
    """

    __slots__ = (
        "_by_plugin",
        "_memories",
        "_nodes",
        "filters",
        "known",
        "merged",
        "served",
        "signatures",
        "states",
    )

    def __init__(
        self,
        signatures: Mapping[str, Hashable],
        memories: Mapping[str, PluginAnswers],
        nodes: NodeTable,
        merged: frozenset[str],
        known: AnswersAboutNodes | None,
        served: Instances,
    ) -> None:
        self.signatures = signatures
        self.merged = merged
        self.known = known
        self.served = served
        self.states: dict[str, CycleState] = {}
        self.filters: Clients = ()
        self._memories = memories
        self._nodes = nodes
        self._by_plugin: dict[str, SignatureAnswers] = {}

    def memory(self, plugin: str) -> PluginAnswers | None:
        """Return the kept answers of a plugin that judges row by row; None for other plugins."""
        memory = self._memories.get(plugin)
        return memory if memory is not None and memory.signer.by_row else None

    def column_memory(self, plugin: str) -> PluginAnswers | None:
        """Return the same as `memory`, if the plugin's own columns are kept."""
        return self.memory(plugin)

    def answers(self, plugin: str) -> SignatureAnswers | None:
        """Return the plugin's answers about equal pods; None if none are kept."""
        answers = self._by_plugin.get(plugin)
        if answers is None and (memory := self._memories.get(plugin)) is not None:
            try:
                answers = memory.of(self.signatures[plugin], self._nodes)
            except Exception:  # noqa: BLE001 (a class of the plugin's own that cannot be compared)
                answers = SignatureAnswers()
            self._by_plugin[plugin] = answers
        return answers

    def own_verdicts(self, plugin: str, nodes: NodeTable) -> OwnVerdicts | None:
        """Return the plugin's kept verdicts on `nodes`; None: none are kept, and all rows are asked about."""
        memory = self.column_memory(plugin)
        answers = None if memory is None else self.answers(plugin)
        return None if memory is None or answers is None else memory.own_verdicts(answers, nodes)

    async def filter(self, client: PluginClient, cycle: Cycle, nodes: NodeTable) -> Verdicts:
        """Return the plugin's verdicts on `nodes`. The plugin is asked about rows without a kept verdict."""
        own = self.own_verdicts(client.name, nodes)
        if own is None:
            return await client.filter(cycle, nodes)
        return own.known() if own.asked is None else own.with_found(await client.filter(cycle, own.asked))

    def skips(self, plugin: str, *points: NoConcern) -> bool:
        """Return True if the plugin signed that it has no concern at one of these points."""
        return concern(self.signatures.get(plugin)) in points


class KeptInPlacement(KeptForPod):
    """The kept answers that hold for a member of a group in one placement. No column is kept of a plugin
    whose answers are not merged: it is asked about each member.
    """

    __slots__ = ("_here",)

    def __init__(
        self,
        signatures: Mapping[str, Hashable],
        memories: Mapping[str, PluginAnswers],
        nodes: NodeTable,
        merged: frozenset[str],
        known: InPlacement,
        served: Instances,
    ) -> None:
        super().__init__(signatures, memories, nodes, merged, known, served)
        self._here = known

    def answers(self, plugin: str) -> SignatureAnswers | None:
        """Return the plugin's answers at PreFilter and PreScore about equal pods in this placement."""
        answers = self._by_plugin.get(plugin)
        if answers is None and plugin in self._memories:
            try:
                answers = self._here.of_plugin(plugin, self.signatures[plugin])
            except Exception:  # noqa: BLE001 (a class of the plugin's own that cannot be compared)
                answers = SignatureAnswers()
            self._by_plugin[plugin] = answers
        return answers

    def column_memory(self, plugin: str) -> None:
        """Return None: no plugin's own columns are kept."""
        return


class KeepAnswers:
    """The answers of one profile's plugins, for one table of nodes at a time.

    `by_row`: the plugins whose answers are merged. Cycles for which no answer can be kept go to
    `AskEveryone`.
    """

    keeps: Final = True

    def __init__(self, plugins: Mapping[ExtensionPoint, Sequence[WeightedPlugin]]) -> None:
        """`plugins`: those of the profile, by extension point."""
        clients = {item.client.name: item.client for items in plugins.values() for item in items}
        self._clients = tuple(clients.values())
        self._served = tuple([client for client in self._clients if client.is_served])
        self._serves_pods = any(not OF_PODS.isdisjoint(client.descriptor.points) for client in self._served)
        """True if a served plugin is asked about the nodes of a pod."""
        self._everyone = AskEveryone()
        self._begin_anew(self._instances())

    def _instances(self) -> Instances:
        return tuple([client.follows for client in self._served])

    def _begin_anew(self, instances: Instances) -> None:
        """Forget everything, and take up what plugins declare now."""
        self._at = instances
        self._kept_served = tuple(
            [client for client, one in zip(self._served, instances, strict=True) if one is not None]
        )
        self._signers = Signers(self._clients)
        self.by_row = frozenset(signer.name for signer in self._signers.all if signer.merges)
        self._by_row_in_order = tuple(sorted(self.by_row))
        self._in_placements = frozenset(
            [one.name for one in self._signers.all if one.merges and _judges_alike_in_placements(one.client)]
        )
        self._memories = {signer.name: PluginAnswers(signer) for signer in self._signers.all if signer.keeps}
        follows = {name: one.signer.follows for name, one in self._memories.items()}
        by_row = {name for name, one in self._memories.items() if one.signer.by_row}
        # An object that changed does not tell which rows it concerns: all answers by row end.
        ends_all = [name for name in by_row if follows[name].has_objects]
        self._versions_of_rows = JointVersions(follows[name] for name in ends_all)
        # The others' objects are part of their signatures; their requeues end their own answers.
        self._others = {name: one for name, one in follows.items() if name not in ends_all}
        self._versions_of_others = JointVersions(self._others.values())
        self._others_then: tuple[int, ...] = ()
        self._signed_at: dict[str, tuple[int, ...]] = {}
        self._split: dict[frozenset[str], tuple[Clients, Clients, Clients]] = {}
        self._seen: OrderedDict[int, None] = OrderedDict()
        """The hashes of keys seen once. Two keys with one hash: the second is kept one pod early."""
        self._known: BySignature[MergedAnswers] = BySignature(MOST_KNOWN)

    def __len__(self) -> int:
        return len(self._known)

    # --- whose pod it is ---------------------------------------------------------------------------

    def begin(self, cycle: Cycle) -> KeptForPod | None:
        """Return the kept answers for the cycle's pod; None: nothing can be kept for this cycle."""
        nodes = cycle.nodes
        if self._served:
            instances = self._instances()
            if instances != self._at:
                self._begin_anew(instances)
            if not all(client.is_asked_in(cycle) for client in self._kept_served):
                return None
        if not self._memories or not nodes.is_snapshot:
            return None
        if not nodes.is_whole and (cycle.trial is None or cycle.nominated or self._serves_pods):
            return None
        # Another table's slots are other nodes.
        if self._known.as_of((nodes.columns.identity, self._versions_of_rows.read())):
            self._seen.clear()
            for memory in self._memories.values():
                memory.clear()
        others = self._versions_of_others.read()
        if others != self._others_then:
            self._catch_up_with_others(others)
        # Before the signatures: what changes later, while a served plugin is awaited, is in none of them.
        cycle.signed_at = self._signed_at
        signatures, key = self._signers.sign(cycle.pod, nodes)
        cycle.signatures = signatures
        if not nodes.is_whole:
            # With merged answers of their own: other plugins have a part in them.
            key = _IN_PLACEMENT, key
        try:
            known = self._known_for(key, nodes)
        except Exception:  # noqa: BLE001 (as in `KeptForPod.answers`)
            known = None
        if not nodes.is_whole:
            if known is None:
                return None
            here = known.in_placement(nodes)
            return KeptInPlacement(signatures, self._memories, nodes, self._in_placements, here, self._at)
        return KeptForPod(signatures, self._memories, nodes, self.by_row, known, self._at)

    def row_signature(self, clients: Clients, pod: Pod, nodes: NodeTable) -> Hashable | None:
        """Return a signature under which all `clients` answer the same while rows stay; see `Answers`."""
        if self._served and (instances := self._instances()) != self._at:
            self._begin_anew(instances)
        if not nodes.is_whole or not nodes.is_snapshot:
            return None
        signatures, key = self._signers.sign(pod, nodes)
        for client in clients:
            name = client.name
            if not client.in_scope(pod) or (name in self.by_row and not client.is_served):
                continue
            # What a served plugin sees of a trial is not for the host to leave out.
            if client.is_served or name not in self._memories:
                return None
            if concern(signatures.get(name)) not in _LASTING:
                return None
        return key

    def versions_of_rows(self) -> Hashable:
        """Return the versions of what plugins that judge row by row read beside the tables; see `Answers`."""
        return tuple([self._memories[name].signer.follows.versions() for name in self._by_row_in_order])

    def _kept_for(self, cycle: Cycle) -> KeptForPod | None:
        """Return the kept answers for the cycle's pod; None: there are none, or a served plugin got another
        instance within the cycle, which may declare something else.
        """
        kept = _begun(cycle)
        if kept is not None and self._served and kept.served != self._instances():
            return None
        return kept

    def _known_for(self, key: Hashable, nodes: NodeTable) -> MergedAnswers | None:
        known = self._known.get(key)
        if known is not None:
            known.catch_up(nodes.columns)
            return known
        once = hash(key)
        if once not in self._seen:
            self._seen[once] = None
            if len(self._seen) > MOST_SEEN:
                self._seen.popitem(last=False)
            return None
        known = MergedAnswers(nodes)
        most = _BYTES_KNOWN // (_BYTES_PER_NODE * max(1, nodes.slot_count))
        self._known.most = min(max(most, LEAST_KNOWN), MOST_KNOWN)
        self._known.keep(key, known)
        return known

    def _catch_up_with_others(self, now: tuple[int, ...]) -> None:
        """Forget the answers of plugins that have requeued pods since the last call.

        `now`: the versions of the plugins whose objects end no rows.
        """
        # The numbers of requeues come first, one for each plugin.
        for name, before, after in zip(self._others, self._others_then, now, strict=False):
            if before != after:
                self._memories[name].clear()
                self._known.clear()  # merged answers, which this plugin is part of
        self._others_then = now
        # A new map: cycles that are under way keep theirs.
        self._signed_at = {name: follows.versions() for name, follows in self._others.items()}

    def split(self, clients: Clients, merged: frozenset[str]) -> tuple[Clients, Clients]:
        """Return (the first plugins whose verdicts are merged, the rest). `merged`: as in `KeptForPod`.

        A plugin after one that is not merged is not merged either: its rejection must not hide an earlier
        one.
        """
        known = self._split.get(merged)
        if known is None or known[0] is not clients:
            count = next((i for i, one in enumerate(clients) if one.name not in merged), len(clients))
            known = self._split[merged] = clients, clients[:count], clients[count:]
        return known[1], known[2]

    # --- PreFilter ---------------------------------------------------------------------------------

    async def pre_filter(self, clients: Clients, cycle: Cycle) -> PreFilterOutcome:
        """Run PreFilter; see `Answers`."""
        kept = cycle.kept = self.begin(cycle)
        if kept is None:
            return await self._everyone.pre_filter(clients, cycle)
        known = kept.known
        asked: dict[str, PreFilterResult] = {}
        if known is not None and known.pre_filtered is not None and known.pre_filtered.clients is clients:
            # A copy: plugins that tell these pods apart wrote state for one pod alone.
            cycle.inherited = kept.states = known.states.copy()
            if await self._ask_rest(known.pre_filtered, asked, kept, cycle):
                return PASSED
            kept.states = {}
        # Plugins after the one that ended PreFilter were not called for this pod, and have written nothing.
        cycle.inherited = kept.states
        rest: list[PluginClient] = []
        running = PreFiltering(cycle)
        for client in clients:
            name = client.name
            answers = kept.answers(name)
            answer = asked.get(name) if answers is None or answers.pre_filter is None else answers.pre_filter
            if answer is None:
                answer = await self._ask_pre_filter(client, answers, kept, cycle)
            if answers is not None and answers.pre_filter is not None and answers.state is not None:
                kept.states[name] = answers.state
            if (name not in self.by_row and not kept.skips(name, *_NOT_FILTERED)) or (
                answers is None or answers.pre_filter is None
            ):
                rest.append(client)
            outcome = running.take(client, answer, lasting=kept.skips(name, *_LASTING))
            if outcome is not None:
                return outcome
        outcome = running.outcome()
        if known is not None:
            left_out = frozenset([client.name for client in rest])
            known.pre_filtered = Skips(
                clients, tuple(rest), cycle.skip_filter - left_out, cycle.skip - left_out
            )
            # State of plugins that are not asked again; the known answers include what they wrote at
            # PreScore.
            now = {name: state for name, state in kept.states.items() if name not in left_out}
            known.states = now | known.states
        return outcome

    async def _ask_rest(
        self, skips: Skips, asked: dict[str, PreFilterResult], kept: KeptForPod, cycle: Cycle
    ) -> bool:
        """Call the plugins without a kept answer, and write their answers to `asked`.

        Return True if all of them pass or skip: PreFilter is over. Return False at the first other answer;
        the plugins after it are not asked.
        """
        point, whole = skips.point, skips.cycle
        for client in skips.rest:
            name = client.name
            answers = kept.answers(name)
            answer = None if answers is None else answers.pre_filter
            if answer is None:
                answer = asked[name] = await self._ask_pre_filter(client, answers, kept, cycle)
            elif answers is not None and answers.state is not None:
                kept.states[name] = answers.state
            if answer.status.code is Code.SKIP:
                point |= {name}
                if kept.skips(name, *_LASTING):
                    whole |= {name}
            elif answer.status.code is not Code.SUCCESS or answer.eligible is not None:
                return False
        cycle.skip_filter, cycle.skip = point, whole
        return True

    async def _ask_pre_filter(
        self, client: PluginClient, answers: SignatureAnswers | None, kept: KeptForPod, cycle: Cycle
    ) -> PreFilterResult:
        answer = await client.pre_filter(cycle, cycle.nodes)
        # Early answers of a served plugin are about this pod's nodes: Filter and Score are kept apart.
        kept_answer = PreFilterResult(answer.status, answer.eligible) if client.is_served else answer
        holds = answers is not None and not client.is_failing and _holds(kept, client.name, kept_answer)
        if answers is not None and holds and _keep_state(answers, cycle, client.name):
            answers.pre_filter = kept_answer
        return answer

    # --- Filter ------------------------------------------------------------------------------------

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
        kept = self._kept_for(cycle)
        if kept is None:
            return await self._everyone.filter(clients, pre_score, cycle, statuses, rows, nominated)
        known, several = kept.known, len(rows) > 1
        if known is None:
            if nominated:
                rows = await nominated_pass(clients, cycle, statuses, rows, nominated)
        else:
            shared, others = self.split(clients, kept.merged)
            if nominated:
                if several:
                    rows = await known.crowded.first_pass(
                        shared, cycle, statuses, rows, nominated, known.verdicts
                    )
                rows = await nominated_pass(others if several else clients, cycle, statuses, rows, nominated)
            judges: Clients = ()
            if len(rows) == len(statuses.table) or (nominated and several):
                judges, clients = shared, others
            elif not several and known.verdicts.has_asked(shared):
                # The node that an equal pod's attempt, or this one's last, has judged already.
                rows = await known.verdicts.ask_about(shared, cycle, statuses, rows)
                clients = others
            if several and any(
                client.sends_filter(cycle) for client in clients if not kept.memory(client.name)
            ):
                return await judge_early(judges, clients, pre_score, known, cycle, statuses, rows)
            if judges:
                kept.filters = () if clients or nominated else judges
                rows = await known.verdicts.ask(judges, cycle, statuses, rows)
        for client in clients:
            if not len(rows):
                break
            asked = candidates(statuses, rows)
            own = kept.own_verdicts(client.name, asked) if several else None
            if own is None:
                verdicts = await client.filter(cycle, asked)
            elif own.asked is None:
                verdicts = own.known()
            else:
                verdicts = own.with_found(await client.filter(cycle, own.asked))
            rows = passed_by(client, verdicts, statuses, rows)
        return rows

    # --- Score -------------------------------------------------------------------------------------

    async def score(
        self, pre_score: Clients, score: tuple[WeightedPlugin, ...], cycle: Cycle, nodes: NodeTable
    ) -> ScoreTable | Status:
        """Run PreScore, Score and NormalizeScore; see `Answers`."""
        kept = self._kept_for(cycle)
        if kept is None:
            return await self._everyone.score(pre_score, score, cycle, nodes)
        failed = await self._pre_score(pre_score, kept, cycle, nodes)
        cycle.pre_scored_s = instant_s()
        if failed is not None:
            return failed
        known = kept.known
        roles = None if known is None else known.roles
        if roles is None or not roles.fit(score, cycle):
            roles = ScoreRoles.of(score, cycle, kept.merged)
            if known is not None:
                known.roles = roles
                known.scores.recorded.forget()
        shared: Sequence[PluginScores] = ()
        table, rest = ScoreTable.empty(nodes), roles.asked
        if known is not None and roles.sharing:
            scores = known.scores
            # A call that fails there is made again below, with error handling and failure policy.
            if await scores.ask(roles.sharing, cycle, nodes) is None and scores.is_in_range:
                shared, table.total, table.leaders = scores.read()
                table.recorded = scores.recorded
                rest = roles.others
        if not shared:
            table.total = np.zeros(len(nodes), dtype=np.int64)
        outcomes: dict[str, ScoreOutcome] = {}
        if rest:
            table.leaders = table.recorded = None
            answers = await ask_scores(
                rest,
                lambda one: self._sends_score(one, kept, cycle, nodes),
                lambda one: self._ask_score(one, kept, cycle, nodes),
            )
            outcomes = {item.client.name: answer for item, answer in zip(rest, answers, strict=True)}
        if known is not None and kept.filters and shared and not rest:
            known.note_step(cycle, kept.filters)
        return put_together(table, roles, {item.plugin: item for item in shared}, outcomes)

    def one_step(self, cycle: Cycle) -> OneStep | None:
        """Return the short way of the cycle's pod; see `Answers`."""
        kept = self._kept_for(cycle)
        return None if kept is None or kept.known is None else kept.known.step_for(cycle)

    def skipping_score(self, plugins: frozenset[str], cycle: Cycle) -> frozenset[str]:
        """Return those of `plugins` that skip Score; see `Answers`."""
        kept = _begun(cycle)
        if kept is None:
            return self._everyone.skipping_score(plugins, cycle)
        return frozenset([name for name in plugins if not kept.skips(name, NoConcern.NEUTRAL)])

    def _ask_score(
        self, client: PluginClient, kept: KeptForPod, cycle: Cycle, nodes: NodeTable
    ) -> Coroutine[Any, Any, ScoreOutcome]:
        memory, answers = kept.column_memory(client.name), kept.answers(client.name)
        if memory is not None and answers is not None:
            return memory.score(answers, cycle, nodes)
        return client.score(cycle, nodes)

    def _sends_score(self, client: PluginClient, kept: KeptForPod, cycle: Cycle, nodes: NodeTable) -> bool:
        """Return True if Score of a served plugin leaves the process, as there are no kept scores."""
        if not client.sends_score(cycle, nodes):
            return False
        memory, answers = kept.memory(client.name), kept.answers(client.name)
        return memory is None or answers is None or not answers.has_scores(nodes)

    async def _pre_score(
        self, clients: Clients, kept: KeptForPod, cycle: Cycle, nodes: NodeTable
    ) -> Status | None:
        """Note the plugins that skip Score. Return a Status for an error that ends the cycle, else None."""
        known = kept.known
        unknown: Sequence[PluginClient]
        if known is not None and known.pre_scored is not None and known.pre_scored.clients is clients:
            cycle.skip_score |= known.pre_scored.point
            cycle.take_over(known.states)
            if not known.pre_scored.rest:
                return None
            unknown = self._not_kept(known.pre_scored.rest, kept, cycle)
        else:
            unknown = self._not_kept(clients, kept, cycle)
            rest = tuple(
                client
                for client in clients
                if kept.answers(client.name) is None
                or (client.name not in self.by_row and not kept.skips(client.name, *_NOT_SCORED))
            )
            if known is not None and all(client in rest for client in unknown):
                skipping = frozenset([client.name for client in clients if client not in rest])
                known.pre_scored = Skips(clients, rest, skipping & cycle.skip_score)
                known.states |= {name: state for name, state in kept.states.items() if name in skipping}
        if not unknown:
            return None
        for client, status in zip(unknown, await pre_score_answers(unknown, cycle, nodes), strict=False):
            if not client.is_failing:
                self._keep_pre_score(kept, client.name, cycle, status)
            failed = note_pre_score(client, status, cycle)
            if failed is not None:
                return failed
        return None

    def _not_kept(self, clients: Clients, kept: KeptForPod, cycle: Cycle) -> list[PluginClient]:
        """Return the plugins to ask at PreScore; for the others, note which skip."""
        unknown: list[PluginClient] = []
        for client in clients:
            answers = kept.answers(client.name)
            if answers is None or answers.pre_score is None:
                unknown.append(client)
                continue
            if answers.state is not None:
                kept.states[client.name] = answers.state
                cycle.take_over({client.name: answers.state})
            if answers.pre_score.code is Code.SKIP:
                cycle.skip_score.add(client.name)
        return unknown

    def _keep_pre_score(self, kept: KeptForPod, plugin: str, cycle: Cycle, status: Status) -> None:
        """Keep the plugin's answer if it holds for the next equal pod."""
        answers = kept.answers(plugin)
        if answers is None or status.code not in (Code.SUCCESS, Code.SKIP):
            return
        if kept.memory(plugin) is None:
            if status.code is Code.SKIP and kept.skips(plugin, *_NOT_SCORED):
                answers.pre_score = status
        elif _keep_state(answers, cycle, plugin):
            answers.pre_score = status


def _judges_alike_in_placements(client: PluginClient) -> bool:
    """Return True if the plugin's answer about a row is the same in each placement that the row is in.

    A plugin whose answers follow from all Nodes may take these from PreFilter and PreScore, which get the
    nodes of the placement.
    """
    descriptor = client.descriptor
    return descriptor.depends_on is not DependsOn.NODES or _BEFORE_ROWS.isdisjoint(descriptor.points)


_IN_PLACEMENT: Final = "in a placement"
_BEFORE_ROWS: Final = frozenset({ExtensionPoint.PRE_FILTER, ExtensionPoint.PRE_SCORE})
_NOT_SCORED: Final = (NoConcern.SCORE, NoConcern.CYCLE)
_NOT_FILTERED: Final = (NoConcern.FILTER, NoConcern.CYCLE, NoConcern.NEUTRAL)
_LASTING: Final = (NoConcern.CYCLE, NoConcern.NEUTRAL)


def _begun(cycle: Cycle) -> KeptForPod | None:
    # `Cycle` is below this package, so it does not name the class that `KeepAnswers.pre_filter` puts there.
    return cycle.kept  # type: ignore[return-value]  # see above


def _holds(kept: KeptForPod, plugin: str, answer: PreFilterResult) -> bool:
    """Return True if PreFilter would return the same for the next pod that is equal for the plugin."""
    if answer.eligible is not None or answer.answers_early:
        return False
    code = answer.status.code
    if kept.memory(plugin) is not None:
        return code is Code.SUCCESS or code is Code.SKIP
    return code is Code.SKIP and kept.skips(plugin, *_NOT_FILTERED)


def _keep_state(answers: SignatureAnswers, cycle: Cycle, plugin: str) -> bool:
    """Keep the state that the plugin wrote. Return False if the plugin published a value or set a token."""
    state = cycle.state(plugin)
    mine = f"{plugin}/"
    if not state.is_private or any(key.startswith(mine) for key in cycle.shared.values):
        return False
    # As it is now: state written at later points depends on more than the signature.
    kept = answers.state = CycleState(state.cycle_id, plugin=plugin)
    kept.inherit(state)
    return True
