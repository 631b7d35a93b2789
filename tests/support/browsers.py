"""Fixtures: a headless Chromium, one per process of the tests, and a new window for each test of the page."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from berth_bench.ui.chromium import INSTALL, Page, chromium, opened, program


@pytest.fixture(scope="session")
def browser() -> Iterator[str]:
    if program() is None:
        assert not os.environ.get("CI"), f"{INSTALL}; CI must run these tests: `make envtest` installs it"
        pytest.skip(INSTALL)
    with chromium(shell_first=True) as address:
        yield address


@pytest_asyncio.fixture
async def page(browser: str) -> AsyncIterator[Page]:
    async with opened(browser) as page:
        yield page
