"""What holds for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog
from berth_host import log
from hypothesis import HealthCheck, settings

# No test may depend on how busy the machine is.
settings.register_profile("without deadline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("without deadline")


@pytest.fixture(autouse=True)
def loggers_that_can_be_listened_to() -> Iterator[None]:
    """A command that configures logging in one test must not decide what a later test can capture."""
    configured = structlog.get_config()
    yield
    structlog.configure(**configured)


log.CACHE_LOGGERS = False
