"""`berth bench latency`: the audit log, the pauses and collections of a loop, and the percentiles."""

from __future__ import annotations

import asyncio
import gc
import io
import json
from pathlib import Path
from typing import Any

import pytest
from berth_bench.latency.audit import AuditLog
from berth_bench.latency.figures import Latencies, Pause, Slice, noted
from berth_bench.latency.turn import go_pauses
from berth_bench.latency.watched import Watch
from berth_bench.rendering.latency import latencies_text
from berth_host.model.clock import ManualClock


def event(name: str, received: str, answered: str, subresource: str = "", code: int = 201) -> bytes:
    ref = {"resource": "pods", "namespace": "default", "name": name}
    content = {
        "stage": "ResponseComplete",
        "objectRef": ref | ({"subresource": subresource} if subresource else {}),
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": f"2026-11-29T16:00:{received}Z",
        "stageTimestamp": f"2026-11-29T16:00:{answered}Z",
    }
    return json.dumps(content).encode() + b"\n"


def test_pod_takes_from_the_request_to_create_it_until_it_was_bound(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(event("before", "00.000000", "00.001000"))
    log = AuditLog(path)
    binding = event("a", "01.100000", "01.250000", "binding")
    with path.open("ab") as file:
        file.write(event("a", "01.000000", "01.050000") + event("b", "01.000000", "01.050000"))
        file.write(event("a", "01.060000", "01.070000", "binding", 409) + binding[:40])
    assert (log.read(), log.unbound) == ([], {"default/a", "default/b"})
    with path.open("ab") as file:
        file.write(binding[40:] + event("before", "02.000000", "02.000001", "binding"))
    (found,) = log.read()
    assert (found.pod, round(found.took_ms, 3)) == ("default/a", 250.0)
    assert log.unbound == {"default/b"}


def test_pause_is_how_much_later_than_asked_the_pulse_came() -> None:
    clock, file = ManualClock(), io.BytesIO()
    watch = Watch(file, clock.monotonic_s)
    watch.beat()
    for seconds in (0.01, 0.029, 0.14):
        clock.advance(seconds)
        watch.beat()
    watch.collected("start", {"generation": 0})
    clock.advance(0.005)
    watch.collected("stop", {"generation": 0})
    watch.collected("start", {"generation": 2})
    watch.collected("stop", {"generation": 2})
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [(line["what"], round(line["ms"])) for line in lines] == [("pause", 130), ("collection", 0)]
    assert lines[0]["cpu_ms"] >= 0


async def test_pulse_and_collections_of_a_running_loop_are_noted() -> None:
    file = io.BytesIO()
    watch = Watch(file)
    try:
        watch.begin(asyncio.get_running_loop())
        gc.collect()
        for _ in range(3):
            await asyncio.sleep(0)
    finally:
        gc.callbacks.remove(watch.collected)
    assert {"what": "collection", "generation": 2}.items() <= json.loads(
        file.getvalue().splitlines()[0]
    ).items()


def line(what: str, ended_s: float, ms: float, **more: Any) -> dict[str, Any]:
    return {"what": what, "ended_s": ended_s, "ms": ms, **more}


def test_pause_names_the_longest_collection_within_it() -> None:
    lines = [
        line("collection", 0.5, 90, generation=2),
        line("collection", 10.05, 20, generation=0),
        line("collection", 10.1, 60, generation=1),
        line("pause", 10.11, 150, cpu_ms=90),
        line("pause", 11, 30, cpu_ms=2),
    ]
    pauses, collections = noted(lines, since_s=1)
    assert [(pause.ms, pause.collection) for pause in pauses] == [(150, "middle"), (30, "")]
    assert [one.name for one in collections] == ["young", "middle"]


def part(times_ms: list[float], pauses: tuple[Pause, ...] = (), **more: Any) -> Slice:
    return Slice(contender="berth", seconds=10, times_ms=tuple(times_ms), pauses=pauses, **more)


def test_percentiles_are_those_of_all_slices() -> None:
    long = Pause(ended_s=1, ms=120, cpu_ms=20, collection="full")
    short = Pause(ended_s=2, ms=30, cpu_ms=1)
    own = Latencies(
        slices=(
            part([float(ms) for ms in range(1, 501)], (short,), unbound=1),
            part([float(ms) for ms in range(501, 1001)], (long,)),
        )
    )
    assert [own.percentile(percent) for percent in (50, 99, 99.9, 100)] == [500, 990, 999, 1000]
    shown = own.as_json("berth bench latency")
    assert (shown["pods"], shown["unbound"], shown["pods_per_s"]) == (1000, 1, 50.0)
    assert (shown["pauses_over_100_ms"], shown["longest_pauses"][0]["collection"]) == (1, "full")
    text = latencies_text([own])
    assert "paused 1 times for more than 100 ms" in text
    assert [word in text for word in ("P99.9 MS", "999.0", "120.0")] == [True] * 3
    assert Latencies(slices=(part([]),)).percentile(99) == 0


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (
            'go_gc_duration_seconds{quantile="0"} 1e-05\ngo_gc_duration_seconds{quantile="1"} 0.002\n'
            "go_gc_duration_seconds_sum 0.5\ngo_gc_duration_seconds_count 17\n",
            (17, 0.002),
        ),
        ("process_cpu_seconds_total 1\n", (0, 0.0)),
    ],
)
def test_collections_of_a_go_process_come_from_its_metrics(text: str, want: tuple[int, float]) -> None:
    assert go_pauses(text) == want
