"""`no_accidents`: nothing in a stretch of a test ended in an error that no code had words for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import structlog


@contextlib.contextmanager
def no_accidents() -> Iterator[None]:
    """Nothing ended in an error that no code had words for: neither in a task of the host nor in its loop."""
    accidents: list[Any] = []

    def note(_logger: Any, method: str, event: Any) -> Any:
        if method in ("error", "exception", "critical"):
            accidents.append(event)
        raise structlog.DropEvent

    structlog.configure(processors=[note], wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: accidents.append(context))
    yield
    loop.set_exception_handler(before)
    assert not accidents, accidents[:3]
