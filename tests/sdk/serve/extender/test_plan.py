"""The points of a plugin that an extender has, the plugins that are refused, and the entry to paste."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from berth_host.config.loading import load_configuration
from berth_sdk import (
    DependsOn,
    EventInterest,
    Need,
    NodeMode,
    Plugin,
    PluginDefinitionError,
    PodSensitivity,
    Status,
)
from berth_sdk.runtime.descriptor import describe
from berth_sdk.serve.extender.plan import Plan
from support.certificates import Authority
from support.places import ROOT


def plan(cls: type, *, node_cache_capable: bool = False, has_api: bool = False) -> Plan:
    return Plan.of(cls, describe(cls), node_cache_capable=node_cache_capable, has_api=has_api)


def refusal(cls: type, **settings: bool) -> str:
    with pytest.raises(PluginDefinitionError) as caught:
        plan(cls, **settings)
    return str(caught.value)


class Filters(Plugin):
    def filter(self, state: Any, pod: Any, node: Any) -> None: ...


class Scores(Plugin):
    def score(self, state: Any, pod: Any, node: Any) -> int:
        return 0


class Binds(Plugin):
    def bind(self, state: Any, pod: Any, node_name: str) -> Status:
        return Status.skip()


class NamesOnly(Filters):
    node_mode = NodeMode.NAMES
    needs = ()


class Everything(Plugin):
    depends_on = DependsOn.TABLE
    deadlines = {"filter": 1.0}  # noqa: RUF012
    events = (EventInterest("Node", ("add",)),)
    reads_shared = ("Other/key",)

    def pre_enqueue(self, pod: Any) -> None: ...
    def sort_key(self, pod: Any) -> bytes:
        return b""

    def pre_filter(self, state: Any, pod: Any, nodes: Any) -> None: ...
    def filter(self, state: Any, pod: Any, node: Any) -> None: ...
    def post_filter(self, state: Any, pod: Any, rejections: Any) -> None: ...
    def score(self, state: Any, pod: Any, node: Any) -> int:
        return 0

    def reserve(self, state: Any, pod: Any, node_name: str) -> Status:
        self.handle.requeue()
        return Status.success()

    def permit(self, state: Any, pod: Any, node_name: str) -> Status:
        return Status.success()

    def pre_bind(self, state: Any, pod: Any, node_name: str, patched: Any) -> Status:
        return Status.success()

    def bind(self, state: Any, pod: Any, node_name: str) -> Status:
        return Status.skip()

    def post_bind(self, state: Any, pod: Any, node_name: str) -> None: ...


@pytest.mark.parametrize(
    ("cls", "verbs"),
    [
        (Filters, ("filter", "preempt")),
        (Scores, ("prioritize",)),
        (Everything, ("filter", "prioritize", "preempt", "bind")),
        (Binds, ("bind",)),
    ],
)
def test_verbs_are_those_of_the_plugins_points(cls: type, verbs: tuple[str, ...]) -> None:
    assert plan(cls, has_api=True).verbs == verbs


def test_each_fact_that_applies_is_one_line() -> None:
    facts = plan(Everything, has_api=True).facts
    said = "\n".join(facts)
    for point in ("PreEnqueue", "QueueSort", "PostFilter", "Reserve", "Permit", "PreBind", "PostBind"):
        assert sum(fact.startswith(point) for fact in facts) == 1, point
    for words in ("hints", "depends_on", "Deadlines", "reads_shared", "HandleError", "empty cycle state"):
        assert words in said
    assert "all nodes of the copy" in said
    assert all("\n" not in fact and fact.endswith(".") for fact in facts)


def test_filter_that_answers_with_objects_says_how_kube_scheduler_scores_them() -> None:
    said = "scores the nodes of an answer as nodes without pods"
    assert said in "".join(plan(Filters, has_api=True).facts)
    assert said not in "".join(plan(Filters, node_cache_capable=True, has_api=True).facts)
    assert said not in "".join(plan(Scores, has_api=True).facts)


def test_facts_that_do_not_apply_are_left_out() -> None:
    assert plan(NamesOnly, node_cache_capable=True).facts == (
        "Filter runs after all filters of kube-scheduler, over the nodes that they left.",
        "Preempt keeps the nodes that the plugin passes without the victims, with these victims.",
    )
    assert not plan(Scores, has_api=True).names_only
    assert "Pods on nodes are not known" in "".join(plan(Scores).facts)
    assert "Pods on nodes are not known" not in "".join(plan(Scores, has_api=True).facts)


@pytest.mark.parametrize("has_tls", [False, True])
@pytest.mark.parametrize("cls", [Filters, Scores, Everything, Binds])
def test_entry_is_one_that_kube_scheduler_takes(cls: type, has_tls: bool, tmp_path: Path) -> None:
    made = plan(cls, node_cache_capable=True, has_api=True)
    scheme = "https" if has_tls else "http"
    text = made.text(f"{scheme}://127.0.0.1:8888", has_tls=has_tls, wants_client_certificate=has_tls)
    (entry,) = yaml.safe_load(text)["extenders"]
    assert {key for key in entry if key.endswith("Verb")} == {f"{verb}Verb" for verb in made.verbs}
    assert entry["nodeCacheCapable"] is True
    assert ("weight" in entry) == ("prioritize" in made.verbs)
    assert ("tlsConfig" in entry) == has_tls
    authority = Authority()
    pair = authority.issue("x")
    for name, content in (
        ("ca.crt", authority.pem),
        ("client.crt", pair.certificate),
        ("client.key", pair.key),
    ):
        (tmp_path / name).write_bytes(content)
    text = text.replace("/path/to", str(tmp_path))
    whole = f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n{text}\n"
    assert load_configuration(whole, source="x").scheduler.extenders[0].url_prefix == entry["urlPrefix"]


class Reserves(Plugin):
    def reserve(self, state: Any, pod: Any, node_name: str) -> Status:
        return Status.success()


class Calls(Filters):
    handle_required = True


class Claims(Filters):
    needs = (Need.nodes(), Need.objects("persistentvolumeclaims"))


class ReadsPods(Filters):
    needs = (Need.nodes(), Need.pods())


class ReadsNodesAlone(Filters):
    needs = (Need.node_objects(),)
    pod_sensitivity = PodSensitivity.NONE


@pytest.mark.parametrize(
    ("cls", "settings", "said"),
    [
        (Reserves, {"has_api": True}, "Reserves takes part in reserve, and an extender in filter"),
        (Calls, {"has_api": True}, "Calls declares handle_required"),
        (Claims, {"has_api": True}, "Claims needs objects of persistentvolumeclaims"),
        (Binds, {}, "an extender posts the Binding itself: give --server"),
        (ReadsPods, {}, "ReadsPods needs the pods on nodes (Need.pods)"),
        (Filters, {"node_cache_capable": True}, "Filters needs data of nodes"),
        (ReadsNodesAlone, {"node_cache_capable": True}, "or leave out --node-cache-capable"),
    ],
)
def test_plugin_that_cannot_work_is_refused_with_the_cure(
    cls: type, settings: dict[str, bool], said: str
) -> None:
    assert said in refusal(cls, **settings)


class NoBatch(Filters):
    """The plugin of the page."""


def test_page_shows_what_the_command_prints() -> None:
    page = (ROOT / "docs/how-to/serve-as-an-extender.md").read_text()
    printed = plan(NoBatch).text("http://127.0.0.1:18763", has_tls=False, wants_client_certificate=False)
    assert f"```text\n{printed}\n```" in page


def test_server_keeps_a_copy_only_where_the_plugin_reads_it() -> None:
    assert plan(Filters, has_api=True).keeps_copy
    assert not plan(NamesOnly, node_cache_capable=True, has_api=True).keeps_copy
    assert not plan(Binds, has_api=True).keeps_copy
    assert plan(Filters).keeps_copy is False
