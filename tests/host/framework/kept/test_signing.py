"""Signatures of pods: signatures by the spec are made once, others in every cycle."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Hashable

import pytest
from berth_host.framework.kept.signing import Signers
from berth_sdk.extension_points import DependsOn, NoConcern, Plugin
from berth_sdk.kept.follows import concern
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable, NodeView
from berth_sdk.testing import make_pod
from structlog.testing import capture_logs
from support.asking import NO_HANDLE
from support.frameworks import local_client, table_of

NODES = table_of("a", "b")


class Signing(Plugin):
    """A plugin that counts its signatures."""

    depends_on: DependsOn | None = DependsOn.NODE

    def filter(self, state: object, pod: Pod, node: NodeView) -> Status | None:
        """Pass all nodes."""
        return None


class BySpec(Signing):
    """A plugin that signs the tolerations."""

    asked = 0

    def sign_spec(self, pod: Pod) -> Hashable:
        """Return the tolerations."""
        self.asked += 1
        return pod.tolerations, self.args.get("mode")


class ByLabel(Signing):
    """A plugin that signs a label."""

    asked = 0

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Return the label."""
        self.asked += 1
        return pod.labels.get("app")


class BySpecOrLabel(Signing):
    """A plugin that signs a label of pods with tolerations; other pods do not concern it."""

    asked: tuple[int, int] = (0, 0)
    """The number of calls of `sign_spec` and of `sign`."""

    def sign_spec(self, pod: Pod) -> Hashable:
        """Return None for a pod with tolerations."""
        self.asked = self.asked[0] + 1, self.asked[1]
        return None if pod.tolerations else NoConcern.CYCLE

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Return the label."""
        self.asked = self.asked[0], self.asked[1] + 1
        return pod.labels.get("app")


class ByNameOrLabel(BySpecOrLabel):
    """A plugin whose `sign_spec` reads more than the spec."""

    def sign_spec(self, pod: Pod) -> Hashable:
        """Return None for pods with a name."""
        return None if pod.name else NoConcern.CYCLE


class Broken(Signing):
    """A plugin whose signing raises."""

    def sign_spec(self, pod: Pod) -> Hashable:
        """Raise ValueError."""
        raise ValueError("no")


class Unhashable(Signing):
    """A plugin whose signature cannot be hashed."""

    def sign_spec(self, pod: Pod) -> Hashable:
        """Return a list."""
        return []  # type: ignore[return-value]  # the fault under test


def signers_of(*plugins: Plugin) -> Signers:
    return Signers([local_client(plugin) for plugin in plugins])


def test_a_spec_is_signed_once_and_a_label_every_time() -> None:
    by_label, by_spec = ByLabel({}, NO_HANDLE), BySpec({}, NO_HANDLE)
    signers = signers_of(by_label, by_spec)
    keys = []
    for name, app in (("one", "web"), ("two", "web"), ("three", "db")):
        pod = make_pod(name, cpu="1", labels={"app": app})
        signatures, key = signers.sign(pod, NODES)
        assert signatures == {"BySpec": ((), None), "ByLabel": app}
        keys.append(key)
    assert keys[0] == keys[1] != keys[2]
    # Once for all pods, and once to check that the signature depends only on the spec.
    assert (by_spec.asked, by_label.asked) == (2, 3)
    other = make_pod("four", cpu="1", tolerations=["dedicated"])
    assert signers.sign(other, NODES)[0]["BySpec"] == (other.tolerations, None)
    assert by_spec.asked == 4


def test_sign_is_called_for_each_pod_whose_spec_does_not_decide_and_for_no_other() -> None:
    plugin, by_label = BySpecOrLabel({}, NO_HANDLE), ByLabel({}, NO_HANDLE)
    signers = signers_of(plugin, by_label)
    for name in ("one", "two", "three"):
        signatures, plain = signers.sign(make_pod(name, cpu="2", labels={"app": "web"}), NODES)
        assert signatures == {"BySpecOrLabel": NoConcern.CYCLE, "ByLabel": "web"}
    assert plugin.asked == (2, 0)
    keys = []
    for app in ("web", "web", "db"):
        pod = make_pod("four", cpu="2", labels={"app": app}, tolerations=["dedicated"])
        signatures, key = signers.sign(pod, NODES)
        assert signatures == {"BySpecOrLabel": app, "ByLabel": app}
        keys.append(key)
    assert plain != keys[0] == keys[1] != keys[2]
    assert plugin.asked == (4, 3)
    # A summary without its object has no spec to keep the signature with.
    assert signers.sign(Pod(name="five", labels={"app": "web"}), NODES)[0]["BySpecOrLabel"] is NoConcern.CYCLE


def test_plugins_with_both_methods_are_signed_with_one_function_elsewhere() -> None:
    client = local_client(BySpecOrLabel({}, NO_HANDLE))
    follows = client.follows
    assert follows is not None and follows.sign is not None
    assert follows.sign(make_pod("one", labels={"app": "web"}), NODES) is NoConcern.CYCLE
    assert follows.sign(make_pod("two", labels={"app": "web"}, tolerations=["dedicated"]), NODES) == "web"


def test_spec_that_decides_for_one_pod_and_not_for_another_signs_no_further_pod() -> None:
    signers = signers_of(ByNameOrLabel({}, NO_HANDLE))
    pod = make_pod("one", cpu="3", labels={"app": "web"})
    with capture_logs() as logs:
        assert signers.sign(pod, NODES)[0] == {"ByNameOrLabel": "web"}
    assert [entry["event"] for entry in logs] == ["plugin.cannot_sign"]
    assert "sign_spec differs" in logs[0]["reason"]
    assert signers.sign(make_pod("", cpu="3"), NODES)[0] == {"ByNameOrLabel": NoConcern.CYCLE}


def test_a_plugin_with_other_arguments_signs_the_same_spec_for_itself() -> None:
    first = signers_of(BySpec({"mode": "first"}, NO_HANDLE))
    second = signers_of(BySpec({"mode": "second"}, NO_HANDLE))
    pod = make_pod("web", cpu="7")
    for _ in range(2):
        assert first.sign(pod, NODES)[0] == {"BySpec": ((), "first")}
        assert second.sign(pod, NODES)[0] == {"BySpec": ((), "second")}


def test_a_summary_without_its_object_is_signed_every_time() -> None:
    by_spec = BySpec({}, NO_HANDLE)
    signers = signers_of(by_spec)
    for _ in range(2):
        assert signers.sign(Pod(name="web"), NODES)[0] == {"BySpec": ((), None)}
    assert by_spec.asked == 2


def test_a_plugin_that_cannot_sign_makes_the_pod_equal_to_no_other() -> None:
    for broken in (Broken, Unhashable):
        signers = signers_of(broken({}, NO_HANDLE), ByLabel({}, NO_HANDLE))
        pod = make_pod("web", labels={"app": "web"})
        (one, first), (two, second) = signers.sign(pod, NODES), signers.sign(pod, NODES)
        assert one["ByLabel"] == two["ByLabel"] == "web"
        assert one[broken.__name__] != two[broken.__name__]
        assert first != second


class _Refuses:
    """A value whose hash and equality raise."""

    def __hash__(self) -> int:
        raise ValueError("no hash")


class RefusesItsHash(Signing):
    """A plugin whose signature raises when it is hashed."""

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Return the value in a tuple, beside a point without concern."""
        return NoConcern.SCORE, _Refuses()


def test_a_signature_that_raises_when_it_is_hashed_is_equal_to_no_other_and_named_once() -> None:
    signers = signers_of(RefusesItsHash({}, NO_HANDLE), Broken({}, NO_HANDLE))
    pod = make_pod("web")
    with capture_logs() as logs:
        (one, first), (two, second) = signers.sign(pod, NODES), signers.sign(pod, NODES)
    assert one["RefusesItsHash"] != two["RefusesItsHash"]
    assert first != second
    assert concern(one["RefusesItsHash"]) is NoConcern.SCORE
    named = {entry["plugin"]: entry["reason"] for entry in logs if entry["event"] == "plugin.cannot_sign"}
    assert len(logs) == len(named) == 2
    assert named["Broken"].startswith("it raised ValueError: no at ")


@pytest.mark.slow
def test_spec_does_not_keep_its_signers_in_memory() -> None:
    by_spec = BySpec({}, NO_HANDLE)
    signers, pod = signers_of(by_spec), make_pod("web", cpu="9")
    signers.sign(pod, NODES)
    signers.sign(make_pod("other", cpu="9"), NODES)
    asked = by_spec.asked
    signers.sign(make_pod("another", cpu="9"), NODES)
    assert by_spec.asked == asked  # the spec has the signature
    gone = weakref.ref(by_spec), weakref.ref(signers)
    del by_spec, signers
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


class NotBySpec(Signing):
    """A plugin whose signature by the spec depends on a label."""

    def sign_spec(self, pod: Pod) -> Hashable:
        """Return the label."""
        return pod.labels.get("app")


def test_a_class_that_signs_more_than_the_spec_is_named_and_does_not_get_the_answers_of_others() -> None:
    by_spec = BySpec({}, NO_HANDLE)
    signers = signers_of(by_spec, NotBySpec({}, NO_HANDLE))
    with capture_logs() as logs:
        for app in ("web", "db", "web"):
            pod = make_pod(app, cpu="11", labels={"app": app})
            assert signers.sign(pod, NODES)[0] == {"BySpec": ((), None), "NotBySpec": app}
    assert [(entry["event"], entry["plugin"]) for entry in logs] == [("plugin.cannot_sign", "NotBySpec")]
    assert "write it as sign" in logs[0]["reason"]


def test_separate_equal_specs_share_their_signatures() -> None:
    signers = signers_of(BySpec({}, NO_HANDLE), ByLabel({}, NO_HANDLE))
    (_, first), (_, second) = (signers.sign(make_pod(name, cpu=name), NODES) for name in ("1", "2"))
    toleration = [{"key": "dedicated", "operator": "Exists"}]
    _, third = signers.sign(make_pod("1", cpu="1", tolerations=toleration), NODES)
    assert first == second
    assert first != third
