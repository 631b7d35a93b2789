"""Collect each test file where it runs, and only there: the option `--by-file` for runs with several workers.

pytest-xdist has every worker collect everything, as it hands out single tests. To import all files and to
write out their parameters takes each worker as much time as a tenth of all tests. With this option a worker
collects one item per file, and the file's tests when it comes to that item. Files are handed out, and stolen
from busy workers, as tests are without it.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

COLLECT_EACH = 16
"""The number of files between two full collections. Without these, a worker grows by 5 MB with each file."""


class UnreadFile(pytest.File):
    """A test file that is not imported yet: one item."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the item that stands for all tests of the file."""
        yield WholeFile.from_parent(self, name="tests")


class WholeFile(pytest.Item):
    """All tests of a file."""

    def runtest(self) -> None:
        """Refuse to be run as a test: `ByFile.pytest_runtest_protocol` runs the tests in its place."""
        raise NotImplementedError

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return what a crash of the worker is reported with."""
        return self.path, None, "tests"


class ByFile:
    """The plugin of a worker."""

    def __init__(self, worker: Any) -> None:
        """Run for this `xdist.remote.WorkerInteractor`."""
        self._worker = worker
        # With Python's own thresholds, each tenth second of the tests is one of the collector.
        gc.set_threshold(20_000, 5, 3)
        self._reading: Path | None = None
        self._count = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(
        self, module_path: Path, parent: pytest.Collector
    ) -> pytest.Collector | None:
        """Put off the import, unless it is this file's turn."""
        if module_path == self._reading:
            return None
        return UnreadFile.from_parent(parent, path=module_path)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """Keep files from `-m` and `-k`: these choose among the tests of each."""
        files = [item for item in items if isinstance(item, WholeFile)]
        items[:] = [item for item in items if not isinstance(item, WholeFile)]
        yield
        items[:0] = files

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Collect a file, and run what `-m` and `-k` leave of it."""
        if not isinstance(item, WholeFile):
            return None
        session = item.session
        tests = self._collected(item)
        own, first = self._worker.item_index, len(session.items)
        session.items.extend(tests)  # where the worker looks up what a report is about
        try:
            for index, test in enumerate(tests):
                self._worker.item_index = first + index
                after = tests[index + 1] if index + 1 < len(tests) else nextitem
                test.ihook.pytest_runtest_protocol(item=test, nextitem=after)
                if session.shouldfail or session.shouldstop:
                    break
        finally:
            del session.items[first:]
            self._worker.item_index = own
        if not tests:
            # The test before this file kept what it shares with the file, and no test of the file ends that.
            session._setupstate.teardown_exact(nextitem)  # noqa: SLF001  # pytest has no public way
        return True

    def _collected(self, item: WholeFile) -> list[pytest.Item]:
        unread = item.parent
        assert unread is not None and unread.parent is not None
        self._reading = item.path
        module = item.ihook.pytest_pycollect_makemodule(module_path=item.path, parent=unread.parent)
        tests = list(item.session.genitems(module))
        item.config.hook.pytest_collection_modifyitems(session=item.session, config=item.config, items=tests)
        # A host that runs puts full collections off.
        self._count += 1
        if self._count % COLLECT_EACH == 0:
            gc.collect()
        gc.freeze()  # what was imported stays
        return tests


def worker_of(config: pytest.Config) -> Any:
    """Return pytest-xdist's plugin in a worker: the module that makes it is run, and not imported."""
    plugins = config.pluginmanager.get_plugins()
    return next(plugin for plugin in plugins if type(plugin).__name__ == "WorkerInteractor")
