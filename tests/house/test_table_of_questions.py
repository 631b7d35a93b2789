"""A new question is one file of `questions` and one row of `QUESTIONS`: both kinds of cluster answer it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, is_dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import berth_host.app
import berth_host.questions
import orjson
import pytest
from berth_host.app import FrameworkAlone, Host
from berth_host.endpoints import pages
from berth_host.endpoints.pages import Answers, QuestionPage
from berth_host.endpoints.request_response import Request
from berth_host.errors.endpoints import UnknownObjectError
from berth_host.questions.questions import AskedCluster, Question
from berth_sdk.testing import make_node, make_pod
from support.hosts import World, node, pod
from support.places import ROOT
from support.serving import FakeProcess

PACKAGE = berth_host.questions.__name__
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def questions() -> dict[type, str]:
    """Return the questions of the room, with the module of each."""
    found: dict[type, str] = {}
    for module in iter_modules(berth_host.questions.__path__, f"{PACKAGE}."):
        for _, cls in inspect.getmembers(import_module(module.name), inspect.isclass):
            if issubclass(cls, Question) and cls is not Question:
                found[cls] = cls.__module__
    return found


@dataclass(frozen=True, slots=True)
class Crowd(Question[dict[str, Any]]):
    """How many pods has a node? What a new file of the room would hold."""

    node_name: str

    async def answer(self, cluster: AskedCluster) -> dict[str, Any]:
        async with cluster.undisturbed():
            node = cluster.snapshot.nodes.node_named(self.node_name)
        if node is None:
            raise UnknownObjectError(f"there is no node {self.node_name}")
        return {"pods": len(node.pods)}


ROW = QuestionPage(("nodes", "*", "crowd"), lambda names, _: Crowd(names[0]), lambda _, __, found: found)


def test_every_question_is_a_record_that_embedders_import_from_one_place() -> None:
    assert len(questions()) == 6
    for cls, module in questions().items():
        assert module.startswith(f"{PACKAGE}.")
        assert is_dataclass(cls)
        assert getattr(berth_host.app, cls.__name__) is cls
        assert cls.__name__ in berth_host.app.__all__


def test_a_host_and_a_framework_alone_have_one_door_each() -> None:
    for asked in (Host, FrameworkAlone):
        doors = [
            name
            for name, method in inspect.getmembers(asked, inspect.iscoroutinefunction)
            if name.startswith(("ask", "fit", "try_", "what_if", "simulate"))
        ]
        assert doors == ["ask"]


def test_the_files_that_a_new_question_touches_are_listed() -> None:
    _, _, rest = CONTRIBUTING.partition("\n### Add a question\n")
    listed = rest.partition("\n### ")[0]
    for path in (
        "host/berth_host/questions",
        "host/berth_host/endpoints/pages.py",
        "host/berth_host/app/__init__.py",
    ):
        assert path in listed
        assert (ROOT / path).exists()


async def test_new_question_is_answered_by_both_kinds_of_cluster() -> None:
    alone = FrameworkAlone()
    alone.add_node(make_node("a"))
    alone.add_pod(make_pod("old", node="a"))
    assert await alone.ask(Crowd("a")) == {"pods": 1}
    async with World([node("a"), pod("old", nodeName="a")]) as world:
        await world.settle()
        assert await world.host.ask(Crowd("a")) == {"pods": 1}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "nodes/a/crowd", 200),
        ("GET", "nodes/b/crowd", 404),
        ("POST", "nodes/a/crowd", 405),
        ("GET", "nodes//crowd", 404),
    ],
    ids=["answer", "unknown", "post", "nameless"],
)
async def test_one_row_is_a_page(
    method: str, path: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "QUESTIONS", (*pages.QUESTIONS, ROW))
    async with World([node("a"), pod("old", nodeName="a")]) as world:
        await world.settle()
        answers = Answers(FakeProcess(world.host.configuration, world.host))
        answer = await answers.answer(Request(method=method, path=f"{pages.PREFIX}{path}"))
    assert answer.status == status
    if status == 200:
        assert orjson.loads(answer.body)["pods"] == 1
