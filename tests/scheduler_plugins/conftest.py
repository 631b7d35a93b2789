"""`ask`: calls a plugin of berth-scheduler-plugins. Every test that takes it runs in process and served."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from berth_scheduler_plugins.load import http_client
from support.asking import Ask, InProcess
from support.served import SCHEDULER_PLUGINS, Served, plugin_server
from support.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def patient_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for sources of metrics than a plugin does: a busy machine may answer late."""
    monkeypatch.setattr(http_client, "LIMIT_S", PATIENCE_S)


@pytest.fixture(scope="session")
def scheduler_plugin_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a process that serves all plugins of the distribution."""
    with plugin_server(tmp_path_factory.mktemp("plugins"), SCHEDULER_PLUGINS) as endpoint:
        yield endpoint


@pytest.fixture(params=["in_process", "socket"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """One transport after the other; each must give the same answers."""
    if request.param == "in_process":
        return InProcess()
    return Served(request.getfixturevalue("scheduler_plugin_server"))
