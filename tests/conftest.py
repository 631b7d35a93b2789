"""Fixtures and options for every test.

`pytest --late SEED tests/host/app` runs the same tests on a cluster that is slow and that mixes kinds and
answers (`berth_bench.life.faulty_cluster`). `make soak` does so for every suite that runs whole hosts.

Every run of one file begins here: what takes long to import is imported where it is needed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import structlog
from berth_host import log
from berth_host.log import hidden


def pytest_pycollect_makemodule(module_path: Path) -> None:
    """Before a module with properties is imported: none may depend on how busy the machine is."""
    if "hypothesis" in module_path.read_text(encoding="utf-8"):
        from hypothesis import HealthCheck, settings
        from support.tiers import examples

        settings.register_profile(
            "without deadline",
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
            max_examples=examples(100),
        )
        settings.load_profile("without deadline")


# A coloured traceback with local variables takes half a second to draw.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.StackInfoRenderer(),
        structlog.processors.TimeStamper("%Y-%m-%d %H:%M:%S", utc=False),
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Forget what a test configures: how logging works, and the secrets that messages hide.

    No fixture, as each of the 15 000 tests would begin and end it.
    """
    configured, secrets = structlog.get_config(), vars(hidden)["_hidden"]
    result = yield
    structlog.configure(**configured)
    vars(hidden)["_hidden"] = secrets
    return result


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the cluster of every `World` is late, and how workers collect."""
    parser.addoption(
        "--by-file", action="store_true", help="with workers: hand out files, each is collected where it runs"
    )
    parser.addoption(
        "--late", type=int, metavar="SEED", help="hosts get a cluster that is slow and mixes answers"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before `-m` chooses."""
    from support.tiers import mark_all_but_a_sample, mark_properties

    mark_all_but_a_sample(items)
    mark_properties(items)


def pytest_configure(config: pytest.Config) -> None:
    """Take note of `-m`. In a worker with `--by-file` that was asked for whole files, collect by file."""
    from support.tiers import begin

    begin(config.getoption("-m"))
    if config.getoption("--late") is not None:
        config.pluginmanager.register(LateClusterEverywhere())
    named = any("::" in argument for argument in config.args)
    if config.getoption("--by-file") and hasattr(config, "workerinput") and not named:
        from support.by_file import ByFile, worker_of

        config.pluginmanager.register(ByFile(worker_of(config)))


class LateClusterEverywhere:
    """The plugin of a run with `--late`."""

    @pytest.fixture(autouse=True)
    def late_cluster_everywhere(self, request: pytest.FixtureRequest) -> Iterator[None]:
        if request.node.get_closest_marker("prompt_cluster"):
            pytest.skip("is about the order of things on a cluster that answers at once")
        from berth_bench.life.faulty_cluster import Faults
        from support.hosts import World

        World.everywhere = (request.config.getoption("--late"), Faults(turns=4))
        yield
        World.everywhere = None


log.CACHE_LOGGERS = False
