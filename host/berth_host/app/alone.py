"""`FrameworkAlone`: the plugins of one profile without a scheduler. Would this pod fit on this node?

For autoscalers and capacity tools (KEP-624, "Interactions with Cluster Autoscaler"). There is no queue, no
cluster and no task of its own: the caller fills a snapshot, and asks in-process and served plugins about a
pod.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.metadata import version
from typing import Final, Self

from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.scenarios import Scenario
from berth_sdk.status import SUCCESS, Status

from berth_host.attach.attachments import Attachments
from berth_host.attach.configured_places import wanted_places
from berth_host.attach.interfaces import AttachSeams
from berth_host.attach.state import PlaceChange, Swap
from berth_host.cache.cache import Cache
from berth_host.cache.generations import Generations
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.cache.snapshot_state import SnapshotState
from berth_host.cluster.watching import GROUP_POLICY, group_gates, judges_coscheduling
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.loading import default_configuration
from berth_host.cycle.chooser import SmallestName
from berth_host.cycle.schedule_one import Algorithm, Profile, SearchSteps
from berth_host.errors.plugins import PluginLoadError
from berth_host.explain.pod_fit import PodFit
from berth_host.explain.simulated import Placement, SimulationSummary
from berth_host.framework.framework import Framework
from berth_host.framework.kept.keep_answers import KeepAnswers
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.handle.backend import HandleBackend
from berth_host.handle.in_process import InProcessHandle
from berth_host.handle.null_backend import NoHost
from berth_host.model.clock import RealClock
from berth_host.model.resources import POD_GROUPS
from berth_host.plugins.clients import ClientSeams, make_clients, plugins_by_point
from berth_host.plugins.registry import ClassRegistry
from berth_host.questions.ask_pod import AboutAttempt, ask_gates, ask_pod
from berth_host.questions.group_trials import GroupFit, GroupTrials
from berth_host.questions.simulating import NodeTemplate, Simulation, Wanted
from berth_host.questions.what_ifs import WhatIfs, check_complete
from berth_host.queue.nominated_columns import NominatedColumns
from berth_host.rpc.cycle import Cycle, CycleEnd

ATTACH_S: Final = 30.0
"""Seconds that `async with FrameworkAlone(...)` waits for served plugins."""


class FrameworkAlone:
    """The plugins of one profile over a snapshot that the caller fills.

    Served plugins are attached inside `async with FrameworkAlone(...)`. The end of the block closes all
    plugins, and the object is not used any more. The block is not needed without served plugins and without
    plugins that have `close`.

    >>> import asyncio
    >>> from berth_sdk.testing import make_node, make_pod
    >>> alone = FrameworkAlone()
    >>> alone.add_node(make_node("small", cpu="1"))
    >>> verdicts = asyncio.run(alone.fits(make_pod("web", cpu="2")))
    >>> verdicts["small"].message
    'Insufficient cpu'
    """

    def __init__(
        self,
        configuration: LoadedConfiguration | None = None,
        *,
        scheduler_name: str = "default-scheduler",
        plugins: Mapping[str, type] | None = None,
        keep_answers: bool = True,
    ) -> None:
        """Make the plugins of profile `scheduler_name`.

        `configuration` None: all default plugins. `plugins`: classes of a custom scheduler, by plugin name.
        `keep_answers` False: every plugin is called for every pod and node. Raises PluginLoadError, and
        KeyError if the configuration has no such profile.
        """
        registry = ClassRegistry(plugins)
        configuration = configuration or default_configuration(registered=registry.points())
        profile = configuration.profile(scheduler_name)
        if profile is None:
            raise KeyError(f"the configuration has no profile {scheduler_name!r}")
        generations = Generations()
        self.objects = ObjectStores(generations)
        self.cache = Cache(generations)
        self.snapshot = Snapshot(self.objects)
        backend: HandleBackend = NoHost(self.objects, lambda: self.snapshot.nodes, self.cache.groups)
        self._state = SnapshotState(self.snapshot, self.cache)
        self._budget_s = configuration.berth.cycle_budget_s
        seams = AttachSeams(state=self._state, listener=_NoListener(), host_version=version("berth-host"))
        self._attachments = Attachments(wanted_places(configuration), seams)
        self._attached = False
        if self._attachments:
            self.snapshot.confirmed_generation = self._attachments.confirmed_generation
        self._made = clients = make_clients(
            configuration,
            ClientSeams(
                registry=registry,
                objects=self.objects,
                facts=self.snapshot,
                handle=lambda name: InProcessHandle(name, backend),
                route=lambda plugin, profile: self._attachments.route(plugin.name, profile.scheduler_name),
            ),
        )
        self.missing = tuple(clients.missing)
        """The default plugins of the profile that this build does not have."""
        self._configuration = configuration
        self._clients = tuple(clients.by_profile[scheduler_name].values())
        by_point = plugins_by_point(profile, clients.by_profile[scheduler_name])
        self.framework = Framework(
            scheduler_name,
            by_point,
            WaitingPods(RealClock()),
            answers=KeepAnswers(by_point) if keep_answers else None,
        )

    async def __aenter__(self) -> Self:
        """Start and attach the served plugins of the configuration.

        Wait until each place was tried once, and at most ATTACH_S for missing plugins. Calls of a plugin
        that is still missing follow its policy; the plugin is attached later, once it serves.
        """
        self.snapshot.update(self.cache)
        await self._attachments.start(ATTACH_S)
        self._attached = True
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the attachments, end the plugins that were started, and close those of this process."""
        self._attached = False
        await self._attachments.stop()
        await self._made.close()

    def add_node(self, node: Node) -> None:
        """Add a node, or the template of a node that does not exist yet."""
        self.objects.put_node(node)
        self.cache.add_node(node)

    def add_pod(self, pod: Pod) -> None:
        """Add a pod that runs on its `node_name`."""
        self.objects.put_pod(pod)
        self.cache.add_pod(pod)

    def cycle(self, pod: Pod) -> Cycle:
        """Begin a cycle over the snapshot so far, for callers that run single points themselves.

        Raises PluginLoadError if a served plugin is not attached.
        """
        self._check_attached()
        self.snapshot.update(self.cache)
        return Cycle(
            uuid.uuid4().hex,
            pod,
            self.framework.profile,
            nodes=self.snapshot.nodes,
            version=self.snapshot.version,
            budget_s=self._budget_s,
        )

    async def fits(self, pod: Pod, nominated: Iterable[Pod] = ()) -> dict[str, Status]:
        """Return per node SUCCESS, or the rejection with the name of the plugin that rejected the node.

        `nominated`: pods with a `nominated_node`, which count as pods of that node.
        """
        return dict((await self._asked(pod, nominated, scores=False)).verdicts)

    async def fit(self, pod: Pod, nominated: Iterable[Pod] = ()) -> PodFit:
        """Return where the pod would go: as `fits`, with the scores of the nodes that fit and the best one.

        `gates` of the answer are the PreEnqueue plugins that would keep the pod out of the queue.
        `preemption` and `nearest` of the answer are empty.
        """
        found = await self._asked(pod, nominated, scores=True)
        gates, notes = await ask_gates(self.framework, pod)
        return replace(found, gates=gates, notes=[*notes, *found.notes])

    async def _asked(self, pod: Pod, nominated: Iterable[Pod], *, scores: bool) -> PodFit:
        self._check_attached()
        self.snapshot.update(self.cache)
        promised: dict[str, list[Pod]] = {}
        for other in nominated:
            promised.setdefault(other.nominated_node, []).append(other)
        steps = SearchSteps(NominatedColumns(), self.snapshot, RealClock())
        return await ask_pod(
            steps, self.own_profile, self.snapshot.nodes, pod, scores=scores, promised=promised
        )

    async def simulate(
        self,
        pods: Iterable[Pod],
        templates: Iterable[NodeTemplate] = (),
        *,
        only_templates: bool = False,
        each_alone: bool = False,
        fills_used_nodes: bool = False,
        all_verdicts: bool = False,
    ) -> tuple[list[Placement], SimulationSummary]:
        """Return where many pods would go, also on nodes that do not exist, and the sums; by position of the
        pods. The options are those of `SimulateRequest` (proto/berth/query/v1/query.proto). Nothing is left.

        Raises PluginLoadError if a served plugin is not attached, IncompleteNodeError, and QuestionError for
        a pod of another profile, and if a node has the name of a template node.
        """
        self._check_attached()
        kinds = tuple(templates)
        check_complete(self.framework, (kind.node for kind in kinds))
        wanted = Wanted(
            pods=tuple(pods),
            templates=kinds,
            only_templates=only_templates,
            each_alone=each_alone,
            fills_used_nodes=fills_used_nodes,
            all_verdicts=all_verdicts,
        )
        simulation = Simulation(_OwnRoom(self), wanted)
        found = [one async for part in simulation.run() for one in part]
        return sorted(found, key=lambda one: one.index), simulation.summary()

    async def what_if(self, pod: Pod, scenarios: Iterable[Scenario]) -> list[Status]:
        """Return for each scenario SUCCESS, or the rejection with the name of its plugin.

        A scenario is a node of the snapshot without some of its pods and with others, or a node that does
        not exist (`Scenario.node`). Each is judged by itself, and nothing of it is left afterwards.

        Raises PluginLoadError if a served plugin is not attached, KeyError for a node that is not there,
        InvariantError for a new node that is, and IncompleteNodeError.
        """
        asked = tuple(scenarios)
        self._check_attached()
        check_complete(self.framework, (one.node for one in asked if one.node is not None))
        what_ifs = WhatIfs(self.framework, self.snapshot)
        cycle = self.cycle(pod)
        self.snapshot.hold()
        try:
            rejected = SUCCESS
            if any(one.node is None for one in asked):
                rejected = (await self.framework.run_pre_filter(cycle)).status
            if rejected.is_success:
                return await what_ifs.run(cycle, asked)
            # On a new node, PreFilter is asked anew.
            found = iter(await what_ifs.run(cycle, [one for one in asked if one.node is not None]))
            return [rejected if one.node is None else next(found) for one in asked]
        finally:
            self.framework.end_cycle(cycle, CycleEnd.UNSCHEDULABLE)
            self.snapshot.release()

    async def try_group(
        self, group: PodGroup, pods: Iterable[Pod], nominated: Iterable[Pod] = ()
    ) -> GroupFit:
        """Say whether a pod group fits: its minimum at once, with the nodes that its pods would get.

        Nothing of the trial is left afterwards. Plugins get Reserve and Unreserve, as in the cycle of a
        group; nobody is preempted. `pods`: the members without a node. Members with a node are added by
        `add_pod`, read with their group (`Pod.from_object(..., groups=True)`), and count for the minimum.
        `nominated`: as for `fits`; may include members.

        Raises ValueError, with the cure, for groups and pods that cannot be tried together, and where the
        configuration does not schedule such groups; PluginLoadError if a served plugin is not attached.
        """
        self._check_attached()
        self._check_kind(group)
        trials = GroupTrials(
            cache=self.cache,
            snapshot=self.snapshot,
            profile=self.own_profile,
            group_policy=self._configuration.gates.values.get(GROUP_POLICY, False),
        )
        return await trials.fit(group, pods, nominated)

    @property
    def own_profile(self) -> Profile:
        """The profile with its search."""
        return Profile(self.framework, Algorithm(self.framework, SmallestName()), self._budget_s)

    def _check_attached(self) -> None:
        if self._attachments.plugins and not self._attached:
            name = next(iter(self._attachments.plugins))
            raise PluginLoadError(
                name, "served", "`async with FrameworkAlone(...)` attaches it for the block"
            )

    def _check_kind(self, group: PodGroup) -> None:
        """Raise ValueError for a group that a host with this configuration would not schedule."""
        if group.is_composite:
            raise ValueError(f"{group.key} is a group of groups: try its PodGroups, one by one")
        if group.is_coscheduling:
            if not any(judges_coscheduling(client.descriptor) for client in self._clients):
                raise ValueError(
                    f"the profile does not schedule {group.key}: enable the plugin Coscheduling in it"
                )
        elif POD_GROUPS not in group_gates(self._configuration):
            raise ValueError(
                f"the configuration does not schedule {group.key}: load it with"
                f" feature_gates={{{POD_GROUPS!r}: True}}"
            )


class _OwnRoom:
    """The snapshot of a `FrameworkAlone` for a simulation: nobody else wants it."""

    def __init__(self, alone: FrameworkAlone) -> None:
        self._alone = alone
        self.snapshot = alone.snapshot
        self.profiles = {alone.framework.profile: alone.own_profile}
        self.steps = SearchSteps(NominatedColumns(), alone.snapshot, RealClock())

    @property
    def is_wanted(self) -> bool:
        """False: there is no queue."""
        return False

    @asynccontextmanager
    async def undisturbed(self) -> AsyncIterator[AboutAttempt]:
        """Hold the snapshot for the block, after the latest changes."""
        self.snapshot.update(self._alone.cache)
        self.snapshot.hold()
        try:
            yield lambda _: None
        finally:
            self.snapshot.release()


class _NoListener:
    """Ignores the changes of attachments, as there is no queue, and each question calls the plugins again."""

    def attached(self, plugin: str) -> None:
        """Do nothing."""

    def lost(self, plugin: str, reason: str) -> None:
        """Do nothing."""

    def swapped(self, swap: Swap) -> None:
        """Do nothing."""

    def place_changed(self, change: PlaceChange) -> None:
        """Do nothing; the log has the change."""
