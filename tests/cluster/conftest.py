"""The real API server for the tests of this folder: one per test process, emptied between tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from berth_bench.versus.real_servers import (
    FIRST_WITH_POD_GROUPS,
    RealServers,
    chosen_release,
    minor,
    missing_programs,
)
from support.certificates import Authority
from support.emptying import empty
from support.observed.audit import POLICY

HERE = Path(__file__).parent
NEEDS = frozenset({"servers", "pod_group_servers"})
"""The fixtures of which every test of the real API server uses one, directly or indirectly."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the suite without the programs, and say how to get them; in CI the tests fail instead."""
    problem = missing_programs()
    for item in items:
        if HERE not in item.path.parents or NEEDS.isdisjoint(getattr(item, "fixturenames", ())):
            continue
        item.add_marker(pytest.mark.cluster)
        if problem and not os.environ.get("CI"):
            item.add_marker(pytest.mark.skip(reason=problem))


@pytest.fixture(scope="session")
def authority() -> Authority:
    """Make the authority whose client certificates the API server trusts."""
    return Authority("clients")


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[RealServers]:
    """Start an API server with RBAC, which logs the scheduler's writes. Raises if a program is missing."""
    folder = tmp_path_factory.mktemp("servers")
    with RealServers(folder, audit_policy=POLICY, client_ca=authority.pem) as running:
        yield running


@pytest.fixture
def empty_servers(servers: RealServers) -> RealServers:
    """Return the servers without the objects of earlier tests."""
    empty(servers)
    return servers


@pytest.fixture(scope="session")
def pod_group_servers(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[RealServers]:
    """Start an API server like that of `servers` that serves pod groups. Raises if a program is missing.

    Skips the test on a release without pod groups.
    """
    if minor() < FIRST_WITH_POD_GROUPS:
        pytest.skip(
            f"{chosen_release()} has no pod groups of scheduling.k8s.io/v1beta1;"
            f" 1.{FIRST_WITH_POD_GROUPS} has them"
        )
    folder = tmp_path_factory.mktemp("pod-group-servers")
    with RealServers(folder, audit_policy=POLICY, client_ca=authority.pem, pod_groups=True) as running:
        yield running


@pytest.fixture
def empty_pod_group_servers(pod_group_servers: RealServers) -> RealServers:
    """Return the servers with pod groups, without the objects of earlier tests."""
    empty(pod_group_servers)
    return pod_group_servers
