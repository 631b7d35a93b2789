"""A Framework without a scheduler: "would this pod fit on a node of this shape?"

For autoscalers and capacity tools (KEP-624, "Interactions with Cluster Autoscaler"): no queue, no cluster,
no loop of its own; a snapshot built by hand, the plugins of one profile, and a question.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.status import SUCCESS, Status

from berth_host.app.clients import ClientSeams, make_clients, plugins_by_point
from berth_host.app.facts import SnapshotFacts
from berth_host.app.registry import ClassRegistry, PluginLoadError
from berth_host.cache.cache import Cache
from berth_host.cache.generations import Generations
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.config.berth.configuration import BerthPlugin
from berth_host.config.configuration import LoadedConfiguration, ResolvedProfile
from berth_host.config.loading import default_configuration
from berth_host.framework.cycle import Cycle
from berth_host.framework.framework import Framework
from berth_host.framework.nominated import NominatedPods
from berth_host.framework.recall.recall import Recall
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.handle.backend import HandleBackend
from berth_host.handle.in_process import InProcessHandle
from berth_host.handle.nobody import NoHost
from berth_host.model.clock import RealClock
from berth_host.rpc.cycle import CycleContext
from berth_host.rpc.route import Route
from berth_host.scheduler.algorithm import Algorithm, SearchStart
from berth_host.scheduler.chooser import SmallestName


class FrameworkAlone:
    """The plugins of one profile, in process, over a snapshot that the caller fills.

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
        recall: bool = True,
    ) -> None:
        """`configuration` None: all default plugins. `recall` False: they are asked everything.

        Raises PluginLoadError, KeyError for no such profile."""
        registry = ClassRegistry(plugins)
        configuration = configuration or default_configuration(registered=registry.points())
        profile = configuration.profile(scheduler_name)
        if profile is None:
            raise KeyError(f"the configuration has no profile {scheduler_name!r}")
        generations = Generations()
        self.objects = ObjectStores(generations)
        self.cache = Cache(generations)
        self.snapshot = Snapshot(self.objects)
        backend: HandleBackend = NoHost(self.objects, lambda: self.snapshot.nodes)
        clients = make_clients(
            configuration,
            ClientSeams(
                registry=registry,
                objects=self.objects,
                facts=SnapshotFacts(self.snapshot),
                handle=lambda name: InProcessHandle(name, backend),
                route=_refuse,
            ),
        )
        self.missing = tuple(clients.missing)
        """Default plugins of the profile that this build does not have."""
        by_point = plugins_by_point(profile, clients.by_profile[scheduler_name])
        self.framework = Framework(
            scheduler_name, by_point, WaitingPods(RealClock()), answers=Recall(by_point) if recall else None
        )

    def add_node(self, node: Node) -> None:
        """A node, or a template of one that does not exist yet."""
        self.objects.put_node(node)
        self.cache.add_node(node)

    def add_pod(self, pod: Pod) -> None:
        """A pod that runs on its `node_name`."""
        self.objects.put_pod(pod)
        self.cache.add_pod(pod)

    def cycle(self, pod: Pod) -> Cycle:
        """A cycle over the snapshot as filled so far, for callers that run single points themselves."""
        self.snapshot.update(self.cache)
        context = CycleContext(uuid.uuid4().hex, pod, self.framework.profile, version=self.snapshot.version)
        return Cycle(context, self.snapshot.nodes)

    async def fits(self, pod: Pod, nominated: Iterable[Pod] = ()) -> dict[str, Status]:
        """Per node SUCCESS, or why not, signed by the plugin that said so.

        `nominated`: pods that are promised a node (`nominated_node`) and count as if they were there.
        """
        cycle = self.cycle(pod)
        promised: dict[str, list[Pod]] = {}
        for other in nominated:
            promised.setdefault(other.nominated_node, []).append(other)
        algorithm = Algorithm(self.framework, SmallestName())
        found = await algorithm.find_feasible(cycle, NominatedPods.of(cycle.nodes, promised), SearchStart())
        names = cycle.nodes.names
        if not found.status.is_success:
            return dict.fromkeys(names, found.status)
        verdicts = {name: found.statuses.status_of(name) for name in names}
        return verdicts | dict.fromkeys((names[row] for row in found.rows.tolist()), SUCCESS)


def _refuse(plugin: BerthPlugin, profile: ResolvedProfile) -> Route:
    raise PluginLoadError(
        plugin.name,
        plugin.endpoint or "command",
        "a framework alone has no attachments: name its class (inProcess), or run a Host",
    )
