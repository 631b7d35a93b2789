"""Checks whether the settings of a leader election can work. Called by `process` and the command line.

Names that no Lease can have are refused here; client-go would request them forever.
Source: client-go `tools/leaderelection/leaderelection.go` (NewLeaderElector), v1.36; apimachinery
`pkg/util/validation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from berth_kube.lease_settings import JITTER

from berth_host.config.checks.names import label_complaints, subdomain_complaints
from berth_host.config.decoding.types_v1 import LeaderElection


@dataclass(frozen=True, slots=True)
class ElectionProblem:
    """A problem of the settings. `fields`: the fields of `leaderElection` that it concerns."""

    text: str
    fields: tuple[str, ...]


def problems(settings: LeaderElection) -> Iterator[ElectionProblem]:
    """Yield the problems of the settings, in client-go's words where client-go checks the same."""
    if settings.lease_duration_s <= settings.renew_deadline_s:
        text = "leaseDuration must be greater than renewDeadline"
        yield ElectionProblem(text, ("leaseDuration", "renewDeadline"))
    if settings.renew_deadline_s <= JITTER * settings.retry_period_s:
        text = f"renewDeadline must be greater than retryPeriod*JitterFactor, which is {JITTER}"
        yield ElectionProblem(text, ("renewDeadline", "retryPeriod"))
    if settings.lease_duration_s < 1:
        text = "leaseDuration must be at least one second: the Lease counts whole seconds"
        yield ElectionProblem(text, ("leaseDuration",))
    for complaint in subdomain_complaints(settings.resource_name):
        yield ElectionProblem(f"resourceName {settings.resource_name!r}: {complaint}", ("resourceName",))
    for complaint in label_complaints(settings.resource_namespace):
        text = f"resourceNamespace {settings.resource_namespace!r}: {complaint}"
        yield ElectionProblem(text, ("resourceNamespace",))


def check_settings(settings: LeaderElection) -> None:
    """Raise ValueError for the first of `problems`, if there is one."""
    for problem in problems(settings):
        raise ValueError(problem.text)
