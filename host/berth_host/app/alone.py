"""`FrameworkAlone`: the plugins of one profile without a scheduler. Would this pod fit on this node?

For autoscalers and capacity tools (KEP-624, "Interactions with Cluster Autoscaler"). There is no queue, no
cluster and no task of its own: the caller fills a snapshot, and asks in-process and served plugins about a
pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Final, Self

from berth_sdk import chance
from berth_sdk.kube_object import ObjectRef
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.tables import ObjectStore

from berth_host.app.asking import Admission, ManifestReader
from berth_host.attach.attachments import Attachments
from berth_host.attach.configured_places import wanted_places
from berth_host.attach.interfaces import AttachSeams
from berth_host.attach.state import PlaceChange, ScopeChange, Swap
from berth_host.attempt.cycle import Cycle
from berth_host.cache.cache import Cache
from berth_host.cache.generations import Generations
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.cache.snapshot_state import SnapshotState
from berth_host.cluster.watching import BUDGETS
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.loading import default_configuration
from berth_host.cycle.chooser import SmallestName
from berth_host.cycle.schedule_one import Algorithm, Profile, SearchSteps
from berth_host.errors.plugins import PluginLoadError
from berth_host.framework.framework import Framework
from berth_host.framework.kept.keep_answers import KeepAnswers
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.handle.backend import HandleBackend
from berth_host.handle.in_process import InProcessHandle
from berth_host.handle.null_backend import NoHost
from berth_host.model.clock import RealClock
from berth_host.plugins.clients import ClientSeams, make_clients, plugins_by_point
from berth_host.plugins.registry import ClassRegistry
from berth_host.questions.ask_pod import AboutAttempt
from berth_host.questions.questions import A, Manifest, Question
from berth_host.queue.nominated_columns import NominatedColumns

ATTACH_S: Final = 30.0
"""Seconds that `async with FrameworkAlone(...)` waits for served plugins."""


class FrameworkAlone:
    """The plugins of one profile over a snapshot that the caller fills.

    Served plugins are attached inside `async with FrameworkAlone(...)`. The end of the block closes all
    plugins, and the object is not used any more. The block is not needed without served plugins and without
    plugins that have `close`.

    >>> import asyncio
    >>> from berth_host.app import Fit
    >>> from berth_sdk.testing import make_node, make_pod
    >>> alone = FrameworkAlone()
    >>> alone.add_node(make_node("small", cpu="1"))
    >>> answer = asyncio.run(alone.ask(Fit(make_pod("web", cpu="2"))))
    >>> answer.verdicts["small"].message
    'Insufficient cpu'
    """

    def __init__(
        self,
        configuration: LoadedConfiguration | None = None,
        *,
        scheduler_name: str = "default-scheduler",
        plugins: Mapping[str, type] | None = None,
        keep_answers: bool = True,
        admission: Admission | None = None,
    ) -> None:
        """Make the plugins of profile `scheduler_name`.

        `configuration` None: all default plugins. `plugins`: classes of a custom scheduler, by plugin name.
        `keep_answers` False: every plugin is called for every pod and node. `admission`: admits the manifests
        of questions; None: a question has records of pods and nodes, no manifests. Raises PluginLoadError,
        and KeyError if the configuration has no such profile.
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
        by_point = plugins_by_point(profile, clients.by_profile[scheduler_name])
        self.framework = Framework(
            scheduler_name,
            by_point,
            WaitingPods(RealClock()),
            answers=KeepAnswers(by_point) if keep_answers else None,
        )
        self._asking = _Turns()
        self._asked = _OwnCluster(self, configuration, admission)

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
        self.check_attached()
        self.snapshot.update(self.cache)
        return Cycle(
            chance.token_hex(16),
            pod,
            self.framework.profile,
            nodes=self.snapshot.nodes,
            version=self.snapshot.version,
            budget_s=self._budget_s,
        )

    async def ask(self, question: Question[A]) -> A:
        """Return the answer to a question (`questions.questions`), of which nothing is left afterwards.

        Questions that are asked at once are answered one after the other. The pods of a question are judged
        by this profile, whatever their schedulerName. Raises PluginLoadError if a served plugin is not
        attached, and what the question raises.
        """
        self.check_attached()
        async with self._asking():
            return await question.answer(self._asked)

    @property
    def own_profile(self) -> Profile:
        """The profile with its search."""
        return Profile(self.framework, Algorithm(self.framework, SmallestName()), self._budget_s)

    def check_attached(self) -> None:
        """Raise PluginLoadError if a served plugin is not attached."""
        if self._attachments.plugins and not self._attached:
            name = next(iter(self._attachments.plugins))
            raise PluginLoadError(
                name, "served", "`async with FrameworkAlone(...)` attaches it for the block"
            )


class _OwnCluster:
    """Answers questions over the nodes and pods that the caller of a `FrameworkAlone` added."""

    is_own = True
    is_wanted = False
    is_stopping = False

    def __init__(
        self, alone: FrameworkAlone, configuration: LoadedConfiguration, admission: Admission | None
    ) -> None:
        self.configuration = configuration
        self._admission = admission
        self.snapshot, self.cache, self.objects = alone.snapshot, alone.cache, alone.objects
        self.profiles = {alone.framework.profile: alone.own_profile}
        self.steps = SearchSteps(NominatedColumns(), alone.snapshot, RealClock())
        self._profile = alone.own_profile
        self._alone = alone
        self._holding = _Turns()

    @property
    def budgets(self) -> ObjectStore:
        """The PodDisruptionBudgets that the caller put into `objects`."""
        return self.objects.of_resource(BUDGETS)

    @asynccontextmanager
    async def undisturbed(self) -> AsyncIterator[AboutAttempt]:
        """Hold the snapshot for the block, after the latest changes, when no other block holds it.

        Raises PluginLoadError if a served plugin is not attached any more.
        """
        async with self._holding():
            self._alone.check_attached()
            self.snapshot.update(self.cache)
            self.snapshot.hold()
            try:
                yield lambda _: None
            finally:
                self.snapshot.release()

    def profile_of(self, pod: Pod) -> Profile:
        """Return the one profile."""
        return self._profile

    async def reader(self, manifests: Sequence[Manifest]) -> ManifestReader:
        """Return a reader that knows the priority classes of the system alone."""
        return ManifestReader(RealClock(), self._admission)

    def notes_about(self, pods: Sequence[Pod]) -> list[str]:
        """Return no notes: who asks knows the cluster."""
        return []


class _Turns:
    """A lock of whatever loop runs: a program may ask in one `asyncio.run` after the other."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()

    def __call__(self) -> asyncio.Lock:
        """Return the lock of the running loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock


class _NoListener:
    """Ignores the changes of attachments, as there is no queue, and each question calls the plugins again."""

    def attached(self, plugin: str) -> None:
        """Do nothing."""

    def lost(self, plugin: str, reason: str) -> None:
        """Do nothing."""

    def post_bound(self, plugin: str, pod: ObjectRef) -> None:
        """Do nothing."""

    def swapped(self, swap: Swap) -> None:
        """Do nothing."""

    def scope_changed(self, change: ScopeChange) -> None:
        """Do nothing."""

    def place_changed(self, change: PlaceChange) -> None:
        """Do nothing; the log has the change."""
