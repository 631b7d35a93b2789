"""Every recorded script is replayed with equal fields; altered lines are noticed."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
from berth_host.cluster import changes, handlers
from berth_host.cycle import schedule_one
from berth_host.errors import HostError
from berth_host.queue import backoff, flush_timers, gates, hints, in_flight, nominator, places, registrations
from berth_host.queue import scheduling_queue as queue

HERE = Path(__file__).parent
GOLDEN = HERE / "golden_queue"


def _tool() -> ModuleType:
    """Load the replay tool, which is a script and not part of a package."""
    spec = importlib.util.spec_from_file_location("replay_queue", HERE / "replay_queue.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


tool = _tool()
RECORDS = {record["name"]: record for record in tool.read_records(GOLDEN)}
FIRST = RECORDS[min(RECORDS)]


def outcome(record: dict[str, Any]) -> Any:
    """Return the first difference of one script, None if it is identical."""
    script = {key: value for key, value in record.items() if key != "expected"}
    return tool.first_difference(record["name"], record["expected"], asyncio.run(tool.actual_of(script)))


@pytest.mark.sampled(every=12)
@pytest.mark.parametrize("name", RECORDS)
def test_script_goes_as_recorded(name: str) -> None:
    assert outcome(RECORDS[name]) is None


def test_every_script_is_here() -> None:
    assert len(RECORDS) == 240


# --- the command line --------------------------------------------------------------------------------


def folder_with(tmp_path: Path, *records: dict[str, Any]) -> Path:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "some.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return folder


def test_identical_folder_prints_one_line_and_exits_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_with(tmp_path, *(RECORDS[name] for name in sorted(RECORDS)[:2]))
    assert tool.main([str(folder)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {"records": 2, "identical": 2, "first_difference": None}


def test_difference_names_script_operation_and_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = json.loads(json.dumps(FIRST))
    record["expected"][5]["schedulingCycle"] += 1
    assert tool.main([str(folder_with(tmp_path, record))]) == 1
    found = json.loads(capsys.readouterr().out)["first_difference"]
    assert (found["name"], found["operation"], found["field"]) == (FIRST["name"], 5, "schedulingCycle")


def test_empty_folder_proves_nothing(tmp_path: Path) -> None:
    assert tool.main([str(folder_with(tmp_path))]) == 1


def test_actual_states_are_written_without_looking_at_the_recorded_ones(tmp_path: Path) -> None:
    record = FIRST
    blind = {**record, "expected": []}
    file = tmp_path / "actual.jsonl"
    tool.main(["--actual", str(file), str(folder_with(tmp_path, blind))])
    (line,) = [json.loads(text) for text in file.read_text().splitlines()]
    assert line["name"] == record["name"]
    assert tool.first_difference(record["name"], record["expected"], line["expected"]) is None


def test_script_that_speaks_of_a_missing_event_is_a_difference_and_no_crash(tmp_path: Path) -> None:
    record = {
        "name": "odd",
        "ops": [{"at": 1, "op": "fail", "pod": "default/nobody"}],
        "expected": [{"activeQ": []}],
    }
    assert tool.replay(folder_with(tmp_path, record))["identical"] == 0


@pytest.mark.parametrize("ops", [[{"at": 1, "op": "teleport"}], [{"at": 1, "op": "create"}], [{"op": "pop"}]])
def test_script_that_cannot_be_run_is_a_difference_and_no_crash(
    tmp_path: Path, ops: list[dict[str, Any]]
) -> None:
    records = [{"name": "odd", "ops": ops, "expected": []}, FIRST]
    result = tool.replay(folder_with(tmp_path, *records))
    assert (result["records"], result["identical"]) == (2, 1)


def test_hints_are_compared_as_a_multiset() -> None:
    first, second = {"hint": "Queue", "pod": "a"}, {"hint": "Skip", "pod": "b"}
    assert tool.first_difference("x", [{"hints": [first, second]}], [{"hints": [second, first]}]) is None
    assert tool.first_difference("x", [{"hints": [first]}], [{"hints": [first, first]}]) is not None


# --- one broken line each --------------------------------------------------------------------------------

BROKEN_LINES = [
    # queue
    (backoff.BackoffTimes.is_backing_off, "expiry_us >= now_us", "expiry_us > now_us", "backoff"),
    (backoff.BackoffTimes.duration_us, "self._initial_us << shift", "self._initial_us", "backoff"),
    (backoff.BackoffTimes.duration_us, "info.consecutive_errors_count or ", "", "backoff"),
    (places.Places.pop, " or self.backoff.pop_early()", "", "backoff-pop"),
    (places.Places._to_active, "if label in self._nominating", "if False", "nominated"),
    (in_flight.InFlight.remember, "if self._markers:", "if False:", ""),
    (in_flight.InFlight.end, "if kept_from > self._first_number:", "if False:", ""),
    (nominator.Nominator.update, "kept = self._node_of.get(old.uid)", "pass", "nominated"),
    (hints.strategy_of, "plugin in info.pending_plugins", "False", "pending"),
    (hints.Hints._judge_pod, "subject.uid != info.uid", "False", "activate"),
    (registrations.Registration.matches, " and event.action <= self.action", "", "updates"),
    (queue.SchedulingQueue.add_unschedulable, "info.timestamp_us = self._now_us()", "pass", "order"),
    (queue.SchedulingQueue.add_unschedulable, "info.backoff_expiration_us = None", "pass", "backoff"),
    (queue.SchedulingQueue.flush_leftover, "info.mark_flushed()", "pass", ""),
    (queue.SchedulingQueue.activate, "self.in_flight.remember", "str", "activate"),
    (queue.SchedulingQueue.update, "self.nominator.update(old, new)", "pass", "nominated"),
    (queue.SchedulingQueue.pop, "entity.count_attempt()", "pass", ""),
    (flush_timers.FlushTimers._fire, "self._queue.flush_backoff()", "pass", "backoff"),
    (gates.Gates._run, "if status.code is not Code.SUCCESS:", "if False:", ""),
    # event handlers
    (handlers.EventHandlers._assigned, "ActionType.ADD", "ActionType.DELETE", ""),
    (handlers.EventHandlers._pod_updated, "self._queue.delete(old)", "pass", ""),
    (handlers.EventHandlers._pod_updated, "self._queue.move_all(event)", "break", ""),
    (handlers.EventHandlers._pending_updated, "if nomination_changed(old, new):", "if False:", "nominated"),
    (handlers.EventHandlers._pending_updated, "if self._cache.is_assumed(new.uid):", "if False:", "binding"),
    (handlers.EventHandlers._nomination_freed, "other.priority <= pod.priority", "True", "nominated"),
    (handlers.EventHandlers._pod_deleted, "self._queue.delete(pod)", "pass", "deletes"),
    (handlers.EventHandlers._node_deleted, "ActionType.DELETE", "ActionType.ADD", ""),
    (changes.pod_changes, "dict(old.labels) != dict(new.labels)", "False", ""),
    (changes.node_changes, "old.unschedulable and not new.unschedulable", "False", "node"),
    # failure handler
    (schedule_one.FailureHandler.handle, "queued.replace_pod(current)", "pass", ""),
    (schedule_one.FailureHandler.handle, "self._queue.done(pod.uid)", "pass", "deletes"),
    (
        schedule_one.FailureHandler.handle,
        "self._queue.nominate(queued.pod, nominated)",
        "pass",
        "nominated",
    ),
    (schedule_one.FailureHandler.handle, "set(failure.pending_plugins)", "set()", "pending"),
    (schedule_one.FailureHandler.handle_binding_failure, "self._forget(assumed)", "pass", "binding"),
    (schedule_one.FailureHandler.handle_binding_failure, "self._queue.move_all(freed)", "pass", "binding"),
]


def owner_of(function: Callable[..., Any]) -> Any:
    """Return the class or module that contains a function."""
    module = sys.modules[function.__module__]
    path = function.__qualname__.split(".")
    return getattr(module, path[0]) if len(path) > 1 else module


def broken(function: Callable[..., Any], line: str, replacement: str) -> FunctionType:
    """Return the same function with one line altered."""
    source = textwrap.dedent(inspect.getsource(function))
    assert line in source, f"{function.__qualname__} has no such line any more: {line}"
    scope: dict[str, Any] = {}
    code = compile(
        f"from __future__ import annotations\n{source.replace(line, replacement, 1)}", "broken", "exec"
    )
    exec(code, vars(sys.modules[function.__module__]), scope)
    made = scope[function.__name__]
    assert isinstance(made, FunctionType)
    return made


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "line", "replacement", "category"),
    [
        pytest.param(*case, id=f"{case[0].__qualname__}: {case[1][:40]} -> {case[2] or 'nothing'}")
        for case in BROKEN_LINES
    ],
)
def test_replay_notices_a_broken_line(
    monkeypatch: pytest.MonkeyPatch,
    function: Callable[..., Any],
    line: str,
    replacement: str,
    category: str,
) -> None:
    altered = broken(function, line, replacement)
    monkeypatch.setattr(owner_of(function), function.__name__, altered)
    for module in (hints, queue, handlers):  # where a plain function was imported by name
        if getattr(module, function.__name__, None) is function:
            monkeypatch.setattr(module, function.__name__, altered)
    asked = (record for name, record in RECORDS.items() if name.startswith(category))
    assert any(goes_another_way(record) for record in asked)


def goes_another_way(record: dict[str, Any]) -> bool:
    """Return True if a script differs from its recording, or fails in the middle."""
    try:
        return outcome(record) is not None
    except (AttributeError, LookupError, HostError):
        return True
