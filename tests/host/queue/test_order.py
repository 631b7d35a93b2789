"""Sort keys: from plugins in process and served, by comparison, missing, and late."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from berth_host.queue.interfaces import DEFERRED, Deferred, QueueSort, SortKeyQuestion
from berth_host.queue.queued_pod import pods_of
from berth_sdk.results import QueuedPod
from support.queue_parts import Plugins, QueueBench, a_pod, node_added

NODE = node_added()


def by_name(question: SortKeyQuestion) -> bytes:
    return question.pod.pod.name.encode()


def bench_with(sort: QueueSort) -> QueueBench:
    return QueueBench(Plugins(sort=sort))


class LateSorter:
    """A served QueueSort plugin."""

    def __init__(self) -> None:
        self.questions: list[SortKeyQuestion] = []

    def ask(self, question: SortKeyQuestion) -> bytes | Deferred:
        self.questions.append(question)
        return DEFERRED

    def answer(self, bench: QueueBench, name: str, key: bytes) -> None:
        question = [item for item in self.questions if item.pod.pod.name == name][-1]
        bench.queue.sort_key_answered(question, key)


async def turns() -> None:
    """Let woken tasks run."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_without_a_plugin_priority_comes_first_then_time() -> None:
    bench = QueueBench()
    bench.add("old")
    bench.add("high", priority=5)
    bench.add("young")
    assert bench.active == ["high", "old", "young"]


def test_keys_decide_and_equal_keys_are_ordered_by_time() -> None:
    bench = bench_with(QueueSort(sort_key=lambda question: question.pod.pod.labels["key"].encode()))
    bench.add("x", labels={"key": "b"})
    bench.add("y", labels={"key": "a"})
    bench.add("z", labels={"key": "a"})
    assert bench.active == ["y", "z", "x"]


def test_plugin_without_keys_orders_by_its_comparison() -> None:
    def longer_first(first: QueuedPod, second: QueuedPod) -> bool:
        return len(first.pod.name) > len(second.pod.name)

    bench = bench_with(QueueSort(less=longer_first))
    bench.add("bb", "a", "cc", "dddd")
    assert bench.active == ["dddd", "bb", "cc", "a"]


def test_comparison_that_raises_gives_way_to_priority_and_time() -> None:
    def broken(first: QueuedPod, second: QueuedPod) -> bool:
        raise RuntimeError("no")

    bench = bench_with(QueueSort(plugin="Broken", less=broken))
    bench.add("a", "b")
    bench.add("high", priority=3)
    assert bench.active == ["high", "a", "b"]
    assert ("Broken", "Less") in bench.notes.raised


def test_key_that_raises_gives_way_to_priority_and_time() -> None:
    def broken(question: SortKeyQuestion) -> bytes:
        if question.pod.pod.name == "bad":
            raise RuntimeError("no")
        return b"k"

    bench = bench_with(QueueSort(plugin="Broken", sort_key=broken))
    bench.add("bad", priority=9)
    bench.add("good")
    assert bench.active == ["good", "bad"]
    assert bench.notes.raised == [("Broken", "SortKey")]


def test_key_is_shown_attempts_and_the_time_of_the_last_return() -> None:
    seen: list[QueuedPod] = []

    def key(question: SortKeyQuestion) -> bytes:
        seen.append(question.pod)
        return b"k"

    bench = bench_with(QueueSort(sort_key=key))
    bench.add("a")
    bench.clock.advance(4)
    bench.reject(bench.pop(), "Fit")
    bench.queue.activate([a_pod("a")])
    assert [pod.attempts for pod in seen] == [0, 1]
    assert seen[1].added_at_s - seen[0].added_at_s == pytest.approx(4.001)
    assert seen[1].first_attempt_at_s == seen[0].added_at_s


def test_pods_whose_key_has_not_come_stand_behind_all_others_and_are_not_popped() -> None:
    sorter = LateSorter()
    bench = bench_with(QueueSort(sort_key=sorter.ask))
    bench.add("a", "b", "c")
    bench.add("high", priority=5)
    assert bench.active == ["high", "a", "b", "c"]
    sorter.answer(bench, "c", b"1")
    sorter.answer(bench, "b", b"2")
    assert bench.active == ["c", "b", "high", "a"]
    assert [bench.pop_name() for _ in range(3)] == ["c", "b", ""]
    sorter.answer(bench, "a", b"3")
    sorter.answer(bench, "high", b"")
    assert [bench.pop_name() for _ in range(3)] == ["a", "high", ""]


def test_key_that_comes_after_the_pod_was_deleted_changes_nothing() -> None:
    sorter = LateSorter()
    bench = bench_with(QueueSort(sort_key=sorter.ask))
    bench.add("a")
    bench.queue.delete(a_pod("a"))
    sorter.answer(bench, "a", b"1")
    assert (bench.active, bench.queue.places.order.open_count) == ([], 0)


async def test_queue_is_ready_when_the_keys_have_come_that_were_asked_for_before() -> None:
    sorter = LateSorter()
    bench = bench_with(QueueSort(sort_key=sorter.ask))
    ready = asyncio.ensure_future(bench.queue.ready())
    bench.add("a", "b")
    await turns()
    bench.add("late")
    sorter.answer(bench, "b", b"1")
    await turns()
    assert not ready.done(), "the key of a may come before that of b"
    sorter.answer(bench, "a", b"0")
    await turns()
    assert ready.done(), "a stream of new pods holds up nobody"
    assert [bench.pop_name() for _ in range(3)] == ["a", "b", ""]


def test_invalidated_keys_reorder_pods_that_back_off_after_an_error() -> None:
    keys = {"a": b"1", "b": b"2"}
    bench = bench_with(QueueSort(sort_key=lambda question: keys[question.pod.pod.name]))
    bench.add("a", "b")
    for info in (bench.pop(), bench.pop()):
        bench.queue.add_unschedulable(info)
    assert [info.pod.name for info in pods_of(bench.queue.places.backoff.failed())] == ["a", "b"]
    keys["a"] = b"3"
    bench.queue.invalidate_sort_keys()
    assert [info.pod.name for info in pods_of(bench.queue.places.backoff.failed())] == ["b", "a"]


def test_answer_to_an_older_question_is_not_taken_for_the_newer_one() -> None:
    sorter = LateSorter()
    bench = bench_with(QueueSort(sort_key=sorter.ask))
    bench.add("a", "b")
    first = sorter.questions[0]
    new = replace(a_pod("a"), resource_version="2", labels={"x": "1"})
    bench.queue.update(a_pod("a"), new, [])
    bench.queue.sort_key_answered(first, b"0")
    sorter.answer(bench, "b", b"5")
    assert bench.active == ["b", "a"]
    sorter.answer(bench, "a", b"4")
    assert bench.active == ["a", "b"]


def test_recovered_plugin_is_asked_about_the_pods_that_it_left_without_a_key() -> None:
    sorter = LateSorter()
    bench = bench_with(QueueSort(plugin="Sort", sort_key=sorter.ask))
    bench.add("a", "b")
    sorter.answer(bench, "a", b"9")
    sorter.answer(bench, "b", b"")
    asked = len(sorter.questions)
    bench.queue.plugin_recovered("Other")
    assert len(sorter.questions) == asked
    bench.queue.plugin_recovered("Sort")
    assert [question.pod.pod.name for question in sorter.questions[asked:]] == ["b"]
    sorter.answer(bench, "b", b"1")
    assert bench.active == ["b", "a"]


def test_pod_whose_key_was_invalidated_is_not_popped_until_the_new_one_comes() -> None:
    sorter = LateSorter()
    bench = bench_with(QueueSort(plugin="Sort", sort_key=sorter.ask))
    bench.add("a", "b")
    sorter.answer(bench, "a", b"1")
    sorter.answer(bench, "b", b"2")
    bench.queue.invalidate_sort_keys(frozenset({"uid-a"}))
    assert bench.active == ["b", "a"]
    sorter.answer(bench, "a", b"3")
    assert bench.active == ["b", "a"]


def test_key_that_arrives_during_the_backoff_orders_the_pods_there() -> None:
    sorter = LateSorter()
    bench = bench_with(QueueSort(sort_key=sorter.ask))
    bench.add("a", "b")
    for name in ("a", "b"):
        sorter.answer(bench, name, name.encode())
    for info in (bench.pop(), bench.pop()):
        bench.reject(info, "Fit")
    bench.queue.move_all(NODE)
    assert bench.backing_off == ["a", "b"]
    sorter.answer(bench, "b", b"1")
    assert bench.backing_off == ["b", "a"]


def test_updated_pod_gets_the_rank_that_it_has_now() -> None:
    bench = QueueBench()
    bench.add("a", "b")
    old = a_pod("b")
    bench.queue.update(old, replace(old, resource_version="2", priority=7), [])
    assert bench.active == ["b", "a"]


def test_keys_by_name_order_the_queue() -> None:
    bench = bench_with(QueueSort(sort_key=by_name))
    bench.add("c", "a", "b")
    assert [bench.pop_name() for _ in range(4)] == ["a", "b", "c", ""]
