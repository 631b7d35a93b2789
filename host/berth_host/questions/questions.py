"""The question and the cluster that can be asked. READ THIS FIRST (questions).

    Question.answer(AskedCluster)   nothing is assumed, reserved, nominated or evicted; no trace is left
        fit.Fit                  where would a pod go?
        fit.Refit                where would a pod of the cluster go, had it no node?
        drain.Drain              which pods could not leave a node?
        simulating.Simulate      where would many pods go, also on nodes that do not exist?
        what_ifs.WhatIf          would a pod fit on changed nodes, or on one that does not exist?
        group_trials.TryGroup    would a pod group fit?

    AskedCluster                    asked by `Host.ask` and `FrameworkAlone.ask`
        app.asked_host.AskedHost    a running host: that of a cluster, or the one that `berth simulate` runs
        app.alone                   the snapshot that the caller of a `FrameworkAlone` filled

A new question is one file here, and one row in `endpoints.pages.QUESTIONS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.tables import ObjectStore

from berth_host.cache.cache import Cache
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.config.configuration import LoadedConfiguration
from berth_host.cycle.schedule_one import Profile, SearchSteps
from berth_host.errors.endpoints import QuestionError
from berth_host.questions.ask_pod import AboutAttempt

Manifest: TypeAlias = Mapping[str, Any]
"""An object as users write it, and as JSON has it."""
A = TypeVar("A", covariant=True)


class ReadsManifests(Protocol):
    """Reads the manifests of one question."""

    @property
    def problem(self) -> str:
        """Why the pods' priorities are not known, with the cure; "": they are."""
        ...

    def pod(self, manifest: Manifest, scheduler_name: str = "") -> Pod:
        """Return the pod. `scheduler_name`: its profile; "": its own. Raises QuestionError."""
        ...

    def node(self, manifest: Manifest) -> Node:
        """Return the node that a template describes. Raises QuestionError."""
        ...


class AskedCluster(Protocol):
    """A cluster that can be asked: a snapshot, the plugins that judge pods, and what is known besides."""

    @property
    def configuration(self) -> LoadedConfiguration:
        """The configuration."""
        ...

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """The profiles by schedulerName."""
        ...

    @property
    def steps(self) -> SearchSteps:
        """The steps of a search over `snapshot`."""
        ...

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot."""
        ...

    @property
    def cache(self) -> Cache:
        """The nodes with their pods."""
        ...

    @property
    def objects(self) -> ObjectStores:
        """The other objects."""
        ...

    @property
    def budgets(self) -> ObjectStore | None:
        """The PodDisruptionBudgets; None: they are not known."""
        ...

    @property
    def is_own(self) -> bool:
        """True: the cluster belongs to the one who asks. There is no queue and no preemption, and a question
        may change the cache until it has its answer.
        """
        ...

    @property
    def is_wanted(self) -> bool:
        """True while pods wait for a scheduling cycle."""
        ...

    @property
    def is_stopping(self) -> bool:
        """True once no cycle begins any more."""
        ...

    def undisturbed(self) -> AbstractAsyncContextManager[AboutAttempt]:
        """Hold the newest snapshot for the block; see `Scheduler.undisturbed`."""
        ...

    def profile_of(self, pod: Pod) -> Profile:
        """Return the profile that places the pod. Raises QuestionError if there is none."""
        ...

    async def reader(self, manifests: Sequence[Manifest]) -> ReadsManifests:
        """Return the reader of the manifests of one question. Raises QuestionError."""
        ...

    def notes_about(self, pods: Sequence[Pod]) -> list[str]:
        """Return what makes an answer about these pods less exact in this cluster, a sentence each."""
        ...


class Question(ABC, Generic[A]):
    """One question, whose answer is an `A`. A question is a record, and can be asked several times."""

    __slots__ = ()

    @abstractmethod
    async def answer(self, cluster: AskedCluster) -> A:
        """Return the answer of the cluster. Raises QuestionError, with the cure."""


def profile_among(pod: Pod, profiles: Mapping[str, Profile]) -> Profile:
    """Return the pod's profile. Raises QuestionError if there is none."""
    profile = profiles.get(pod.scheduler_name)
    if profile is None:
        raise QuestionError(
            f"pod {pod.key} has the schedulerName {pod.scheduler_name!r}, and this scheduler places"
            f" {', '.join(sorted(profiles))}: ask the other one, or write one of these names"
        )
    return profile
