"""A running host as a cluster that can be asked (`questions.questions.AskedCluster`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from berth_sdk.pod import COSCHEDULING_LABEL, Pod
from berth_sdk.tables import ObjectStore

from berth_host.app.asking import ManifestReader, read_classes
from berth_host.app.parts import HostParts
from berth_host.cache.cache import Cache
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.cluster.watching import BUDGETS, group_gates, judges_coscheduling
from berth_host.config.configuration import LoadedConfiguration
from berth_host.cycle.schedule_one import Profile, SearchSteps
from berth_host.model.resources import POD_GROUPS
from berth_host.questions.ask_pod import AboutAttempt
from berth_host.questions.question_notes import note_about_members
from berth_host.questions.questions import Manifest, profile_among


class AskedHost:
    """A running host. One question runs at a time, while no scheduling cycle runs."""

    is_own = False

    def __init__(self, parts: HostParts) -> None:
        self._parts = parts

    @property
    def configuration(self) -> LoadedConfiguration:
        """The configuration of the host."""
        return self._parts.configuration

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """The profiles by schedulerName."""
        return self._parts.scheduler.profiles

    @property
    def steps(self) -> SearchSteps:
        """The steps of the scheduling loop."""
        return self._parts.scheduler.steps

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot of the scheduling cycles."""
        return self._parts.snapshot

    @property
    def cache(self) -> Cache:
        """The nodes with their pods."""
        return self._parts.cache

    @property
    def objects(self) -> ObjectStores:
        """The objects from the watches."""
        return self._parts.objects

    @property
    def budgets(self) -> ObjectStore | None:
        """The PodDisruptionBudgets; None: the host does not watch them."""
        return self.objects.of_resource(BUDGETS) if BUDGETS in self._parts.watching.needed else None

    @property
    def is_wanted(self) -> bool:
        """True while pods wait for a scheduling cycle."""
        return self._parts.scheduler.queue.has_ready

    @property
    def is_stopping(self) -> bool:
        """True once no cycle begins any more."""
        return self._parts.scheduler.is_stopping

    def undisturbed(self) -> AbstractAsyncContextManager[AboutAttempt]:
        """Hold the newest snapshot for the block, between two scheduling cycles."""
        return self._parts.scheduler.undisturbed()

    def profile_of(self, pod: Pod) -> Profile:
        """Return the profile that places the pod. Raises QuestionError if there is none."""
        return profile_among(pod, self.profiles)

    async def reader(self, manifests: Sequence[Manifest]) -> ManifestReader:
        """Return the reader of these manifests of pods, with the cluster's PriorityClasses if they count."""
        classes = await read_classes(self._parts.cluster, manifests)
        return ManifestReader(self._parts.clock, self._parts.options.admission, classes)

    def notes_about(self, pods: Sequence[Pod]) -> list[str]:
        """Return a note about the pods that this host would place with their group."""
        has_groups = POD_GROUPS in group_gates(self.configuration)
        has_coscheduling = any(
            judges_coscheduling(client.descriptor)
            for clients in self._parts.clients.by_profile.values()
            for client in clients.values()
        )

        def is_member(pod: Pod) -> bool:
            group = None if pod.object is None else pod.object.get("spec.schedulingGroup.podGroupName")
            return bool(has_groups and group) or (has_coscheduling and COSCHEDULING_LABEL in pod.labels)

        return note_about_members([pod for pod in pods if is_member(pod)])
