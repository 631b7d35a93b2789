"""Plugins by profile and point -> the framework of each profile, and the profile as the scheduler runs it.

Called when a host's parts are put together (`parts`).
Source: kube-scheduler `pkg/scheduler/profile/profile.go` (NewMap), v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from berth_host.config.configuration import LoadedConfiguration
from berth_host.framework.binding import PreBindRunner
from berth_host.framework.framework import Framework
from berth_host.framework.kept.keep_answers import KeepAnswers
from berth_host.framework.measured import MeasuredFramework
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.metrics.scheduler_metrics import SchedulerMetrics
from berth_host.plugins.clients import PointPlugins
from berth_host.scheduler.chooser import Chooser
from berth_host.scheduler.schedule_one import Algorithm, Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkSeams:
    """The parts that the frameworks of all profiles share. `keep_answers` False: every plugin is asked
    about every pod and node.
    """

    waiting_pods: WaitingPods
    pre_bind: PreBindRunner
    metrics: SchedulerMetrics
    keep_answers: bool = True


def make_frameworks(plugins: Mapping[str, PointPlugins], seams: FrameworkSeams) -> dict[str, Framework]:
    """One framework per profile, by schedulerName."""
    return {
        name: MeasuredFramework(
            name,
            points,
            seams.waiting_pods,
            seams.pre_bind,
            seams.metrics,
            KeepAnswers(points) if seams.keep_answers else None,
        )
        for name, points in plugins.items()
    }


def make_profiles(
    configuration: LoadedConfiguration, frameworks: Mapping[str, Framework], chooser: Chooser
) -> dict[str, Profile]:
    """The scheduler's profiles, by schedulerName: framework, search, and the budget of a cycle."""
    made: dict[str, Profile] = {}
    for profile in configuration.profiles:
        framework = frameworks[profile.scheduler_name]
        percentage = profile.percentage_of_nodes_to_score
        if percentage is None:
            percentage = configuration.scheduler.percentage_of_nodes_to_score
        made[profile.scheduler_name] = Profile(
            framework, Algorithm(framework, chooser, percentage), configuration.berth.cycle_budget_s
        )
    return made
