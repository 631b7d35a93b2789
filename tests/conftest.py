"""What holds for every test.

`pytest --late SEED tests/host/app tests/host/scheduler tests/host/attach` runs those suites as they are on a
cluster that is slow and mixes kinds and answers (`support.faulty_cluster`); `make soak` does so.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog
from berth_host import log
from hypothesis import HealthCheck, settings
from support.faulty_cluster import Faults
from support.hosts import World

# No test may depend on how busy the machine is.
settings.register_profile("without deadline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("without deadline")


@pytest.fixture(autouse=True)
def loggers_that_can_be_listened_to() -> Iterator[None]:
    """A command that configures logging in one test must not decide what a later test can capture."""
    configured = structlog.get_config()
    yield
    structlog.configure(**configured)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the cluster of every `World` is late."""
    parser.addoption(
        "--late", type=int, metavar="SEED", help="hosts get a cluster that is slow and mixes answers"
    )


@pytest.fixture(autouse=True)
def late_cluster_everywhere(request: pytest.FixtureRequest) -> Iterator[None]:
    """Only with `--late`."""
    seed = request.config.getoption("--late")
    if seed is None:
        yield
        return
    if request.node.get_closest_marker("prompt_cluster"):
        pytest.skip("is about the order of things on a cluster that answers at once")
    World.everywhere = (seed, Faults(turns=4))
    yield
    World.everywhere = None


log.CACHE_LOGGERS = False
