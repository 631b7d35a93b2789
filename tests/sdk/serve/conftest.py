"""Fixtures of the SDK's tests: real servers on real sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.sdk_server import Serving

Serve = Callable[..., Serving]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start a server of these classes on a Unix socket, with a host played by hand beside it."""
    with ExitStack() as stack:

        def start(*classes: type) -> Serving:
            return stack.enter_context(Serving(tmp_path, *classes))

        yield start
