"""`ask`: calls a plugin. Every test that takes it runs in process and over a socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.asking import Ask, InProcess
from support.served import Served, default_plugin_server


@pytest.fixture(scope="session")
def plugin_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a process that serves all default plugins."""
    with default_plugin_server(tmp_path_factory.mktemp("plugins")) as endpoint:
        yield endpoint


@pytest.fixture(params=["in_process", "socket"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """One transport after the other; each must give the same answers."""
    if request.param == "in_process":
        return InProcess()
    return Served(request.getfixturevalue("plugin_server"))
