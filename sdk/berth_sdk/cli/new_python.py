"""A plugin's name and extension points -> the files of a Python package that runs, with its test.

Called by `cli.new`. Each extension point has a small method that does something a test can see, by labels and
annotations of the plugin's own; the author puts his rule in its place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from berth_sdk.extension_points import ExtensionPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The code of one extension point. `names`: imports from berth_sdk. `lines`: lines of `__init__`."""

    names: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    attributes: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    methods: str
    test: str


_PARTS: Final[Mapping[ExtensionPoint, _Part]] = {
    ExtensionPoint.PRE_ENQUEUE: _Part(
        names=("QueuedPod", "Status"),
        keys={"HOLD": "hold"},
        methods='''
    def pre_enqueue(self, pod: QueuedPod) -> Status:
        """Keep pods with the annotation HOLD out of the queue until it is removed."""
        if HOLD in pod.pod.annotations:
            return Status.unresolvable(f"annotation {HOLD} holds the pod")
        return Status.success()
''',
        test="""
def test_pod_that_is_held_does_not_enter_the_queue() -> None:
    host = PluginHost($CLASS)
    assert host.pre_enqueue(make_pod("free")).is_success
    assert not host.pre_enqueue(make_pod("held", annotations={HOLD: "true"})).is_success
""",
    ),
    ExtensionPoint.QUEUE_SORT: _Part(
        names=("QueuedPod", "sort_keys"),
        methods='''
    def sort_key(self, pod: QueuedPod) -> bytes:
        """Order pods by priority, the highest first, then by the time that they wait."""
        return sort_keys.join(
            sort_keys.descending(sort_keys.integer(pod.pod.priority)), sort_keys.time(pod.added_at_s)
        )
''',
        test="""
def test_pod_of_higher_priority_comes_first() -> None:
    host = PluginHost($CLASS)
    low, high = make_pod("low", priority=1), make_pod("high", priority=2)
    assert [pod.name for pod in host.order([low, high])] == ["high", "low"]
""",
    ),
    ExtensionPoint.PRE_FILTER: _Part(
        names=("CycleState", "NodeTable", "Pod", "PreFilterResult"),
        keys={"ONLY": "only"},
        methods='''
    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> PreFilterResult:
        """Reduce the nodes to those that the annotation ONLY lists, separated by commas."""
        names = pod.annotations.get(ONLY, "")
        return PreFilterResult(eligible=frozenset(names.split(",")) if names else None)
''',
        test="""
def test_annotation_reduces_the_nodes() -> None:
    host = PluginHost($CLASS, nodes=NODES)
    assert host.attempt(make_pod("web", annotations={ONLY: "n1,n2"})).pre_filter().eligible == {"n1", "n2"}
    assert host.attempt(make_pod("web")).pre_filter().eligible is None
""",
    ),
    ExtensionPoint.FILTER: _Part(
        names=("CycleState", "NodeView", "Pod", "Status"),
        keys={"CLOSED": "closed"},
        methods='''
    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        """Reject the nodes that have the label CLOSED."""
        if CLOSED in node.labels:
            return Status.unresolvable(f"node(s) have the label {CLOSED}")
        return Status.success()
''',
        test="""
def test_node_that_is_closed_is_rejected() -> None:
    host = PluginHost($CLASS, nodes=[make_node("open"), make_node("shut", labels={CLOSED: "true"})])
    verdicts = host.attempt(make_pod("web")).filter()
    assert (verdicts["open"].is_success, verdicts["shut"].is_success) == (True, False)
""",
    ),
    ExtensionPoint.POST_FILTER: _Part(
        names=("CycleState", "NodeRejections", "Pod", "PostFilterResult", "Status"),
        methods='''
    def post_filter(self, state: CycleState, pod: Pod, rejections: NodeRejections) -> PostFilterResult:
        """Say that this plugin cannot make room, so that the host asks the next one."""
        LOG.info("no node for %s", pod.key)
        return PostFilterResult(Status.unschedulable("$NAME cannot make room"))
''',
        test="""
def test_plugin_leaves_the_search_for_victims_to_others() -> None:
    host = PluginHost($CLASS, nodes=NODES)
    assert not host.attempt(make_pod("web")).post_filter().status.is_success
""",
    ),
    ExtensionPoint.PRE_SCORE: _Part(
        names=("CycleState", "NodeTable", "Pod", "Status"),
        keys={"UNRANKED": "unranked"},
        methods='''
    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Do not score pods with the annotation UNRANKED."""
        return Status.skip() if UNRANKED in pod.annotations else Status.success()
''',
        test="",
    ),
    ExtensionPoint.SCORE: _Part(
        names=("CycleState", "NodeView", "Pod", "ScoreNormalization"),
        keys={"RANK": "rank"},
        attributes=("normalization = ScoreNormalization.NONE",),
        methods='''
    def score(self, state: CycleState, pod: Pod, node: NodeView) -> int:
        """Score a node by its label RANK, a number from 0 to 100; 0 without it."""
        rank = node.labels.get(RANK, "")
        return min(int(rank), 100) if rank.isdecimal() else 0
''',
        test="""
def test_node_of_higher_rank_scores_more() -> None:
    host = PluginHost($CLASS, nodes=[make_node("good", labels={RANK: "90"}), make_node("plain")])
    scores = host.attempt(make_pod("web")).score()
    assert scores["good"] > scores["plain"]
""",
    ),
    ExtensionPoint.NORMALIZE_SCORE: _Part(
        names=("CycleState", "NodeTable", "Pod"),
        methods='''
    def normalize(
        self, state: CycleState, pod: Pod, scores: NDArray[np.int64], nodes: NodeTable
    ) -> NDArray[np.int64]:
        """Bring the scores into 0..100: the best node gets 100."""
        best = int(scores.max(initial=0))
        return scores * 100 // best if best else scores
''',
        test="""
def test_best_node_gets_100() -> None:
    host = PluginHost($CLASS, nodes=[make_node("good", labels={RANK: "50"}), make_node("plain")])
    assert host.attempt(make_pod("web")).score() == {"good": 100, "plain": 0}
""",
    ),
    ExtensionPoint.RESERVE: _Part(
        names=("CycleState", "LiveReservation", "Need", "Pod", "Reservations", "Status"),
        attributes=("needs: Sequence[Need] = (Need.nodes(), Need.pods())",),
        lines=(
            'self.limit = args.get("podsPerNode", 110)',
            "if not isinstance(self.limit, int) or self.limit < 1:",
            '    raise PluginArgsError("podsPerNode: must be a whole number above 0")',
            "# Each pod takes one place of its node, whether it is under way or on the node.",
            "self.places = Reservations[int](handle, lambda pod: 1, per_node=True)",
        ),
        methods='''
    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Reserve one of the places of the node, `podsPerNode` of the arguments."""

        def free(used: list[int]) -> int | None:
            return 1 if sum(used) < self.limit else None

        if self.places.take(state, pod, node_name, free) is None:
            return Status.unschedulable("node(s) have no free place")
        return Status.success()

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Give the place back. Called also for pods that never got one."""
        self.places.give_back(state)  # after a binding it ends by itself: the pod on its node counts then

    def reconcile(self, live: Sequence[LiveReservation]) -> Sequence[LiveReservation]:
        """Keep the live reservations and no other one, after a restart of this process or of the host."""
        return self.places.take_over(live)
''',
        test="""
def test_place_is_given_back() -> None:
    host = PluginHost($CLASS, {"podsPerNode": 1}, nodes=NODES)
    first, second = host.attempt(make_pod("a")), host.attempt(make_pod("b"))
    assert first.reserve("n1").is_success
    assert not second.reserve("n1").is_success
    first.unreserve("n1")
    assert second.reserve("n1").is_success


def test_place_of_a_bound_pod_is_free_when_the_pod_is_gone() -> None:
    host = PluginHost($CLASS, {"podsPerNode": 1}, nodes=NODES)
    bound, other = host.attempt(make_pod("a")), host.attempt(make_pod("b"))
    with host.hold_snapshot():
        assert bound.place("n1").is_success
        assert not other.reserve("n1").is_success
    assert len(host.runtime.plugin.places) == 0
    assert not other.reserve("n1").is_success
    host.remove_pod(bound.pod)
    assert other.reserve("n1").is_success


def test_argument_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(PluginArgsError, match="podsPerNode"):
        PluginHost($CLASS, {"podsPerNode": 0})
""",
    ),
    ExtensionPoint.PERMIT: _Part(
        names=("CycleState", "PermitResult", "Pod", "Status"),
        keys={"WAIT": "wait-seconds"},
        methods='''
    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        """Hold pods with the annotation WAIT for so many seconds; `self.handle.allow` ends it."""
        seconds = pod.annotations.get(WAIT, "")
        return PermitResult.wait(float(seconds)) if seconds.isdecimal() else Status.success()
''',
        test="""
def test_pod_with_the_annotation_waits() -> None:
    host = PluginHost($CLASS, nodes=NODES)
    assert host.attempt(make_pod("a")).permit("n1").status.is_success
    assert host.attempt(make_pod("b", annotations={WAIT: "30"})).permit("n1").wait_timeout_s == 30
""",
    ),
    ExtensionPoint.PRE_BIND: _Part(
        names=("CycleState", "ObjectPatch", "PatchResult", "Pod", "PreBindResult", "Status"),
        keys={"CHOSEN": "chosen-node"},
        methods='''
    def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult:
        """Write the chosen node into the pod's annotation CHOSEN; the host makes the patch."""
        patch = ObjectPatch(
            resource="pods", ref=pod.ref, merge_patch={"metadata": {"annotations": {CHOSEN: node_name}}}
        )
        return PreBindResult(Status.success(), patches=(patch,), done_when_applied=True)
''',
        test="""
def test_chosen_node_is_written_to_the_pod() -> None:
    attempt = PluginHost($CLASS, nodes=NODES).attempt(make_pod("web"))
    assert attempt.pre_bind("n1").status.is_success
    assert attempt.pod.annotations[CHOSEN] == "n1"
""",
    ),
    ExtensionPoint.BIND: _Part(
        names=("BindResult", "CycleState", "Pod", "Status"),
        methods='''
    def bind(self, state: CycleState, pod: Pod, node_name: str) -> BindResult:
        """Let the host post the Binding."""
        return BindResult(Status.success(), host_binds=True)
''',
        test="""
def test_host_posts_the_binding() -> None:
    assert PluginHost($CLASS, nodes=NODES).attempt(make_pod("web")).bind("n1").host_binds
""",
    ),
    ExtensionPoint.POST_BIND: _Part(
        names=("CycleState", "Pod"),
        methods='''
    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Log that the pod is bound."""
        LOG.info("%s is bound to %s", pod.key, node_name)
''',
        test="""
def test_binding_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        PluginHost($CLASS, nodes=NODES).attempt(make_pod("web")).post_bind("n1")
    assert "is bound to n1" in caplog.text
""",
    ),
}

POINTS: Final = tuple(_PARTS)
"""The points that a package can begin with. Those of groups of pods are not among them."""

_BY_ROW: Final = {
    ExtensionPoint.PRE_FILTER,
    ExtensionPoint.FILTER,
    ExtensionPoint.PRE_SCORE,
    ExtensionPoint.SCORE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """The names of one plugin. `name`: rack-aware, `module`: rack_aware, `cls`: RackAware."""

    name: str
    module: str
    cls: str


def files(naming: Naming, points: Sequence[ExtensionPoint], sdk_version: str) -> dict[str, str]:
    """Return the package's files: path below its folder -> text. `points`: some of POINTS, in their order."""
    return {
        f"{naming.module}/__init__.py": _plugin(naming, points),
        f"{naming.module}/py.typed": "",
        f"tests/test_{naming.module}.py": _test(naming, points),
        "pyproject.toml": _filled(_PYPROJECT, naming, SDK=".".join(sdk_version.split(".")[:2])),
        "scheduler.yaml": configuration(
            naming, points, ["berth-sdk", "serve", f"{naming.module}:{naming.cls}"]
        ),
        "cluster.yaml": CLUSTER,
        "Dockerfile": _filled(_DOCKERFILE, naming),
        ".dockerignore": ".git\n.venv\n__pycache__\n",
        ".gitignore": ".venv\n__pycache__\n*.egg-info\ndist\n",
        ".github/workflows/test.yaml": _filled(_WORKFLOW, naming),
        "README.md": _filled(_README, naming, POINTS=", ".join(point.config_name for point in points)),
    }


def _filled(text: str, naming: Naming, **more: str) -> str:
    for key, value in {"CLASS": naming.cls, "MODULE": naming.module, "NAME": naming.name, **more}.items():
        text = text.replace(f"${key}", value)
    return text


def _keys(naming: Naming, points: Sequence[ExtensionPoint]) -> dict[str, str]:
    return {
        constant: f"{naming.name}.example.com/{key}"
        for point in points
        for constant, key in _PARTS[point].keys.items()
    }


def _plugin(naming: Naming, points: Sequence[ExtensionPoint]) -> str:
    parts = [_PARTS[point] for point in points]
    names = {name for part in parts for name in part.names} | {"Plugin"}
    attributes = [line for part in parts for line in part.attributes]
    if ExtensionPoint.NORMALIZE_SCORE in points:
        # A class with `normalize` brings its scores into 0..100 itself.
        attributes.remove("normalization = ScoreNormalization.NONE")
        names.discard("ScoreNormalization")
    if points and _BY_ROW.issuperset(points):
        names.add("DependsOn")
        attributes.append("depends_on = DependsOn.NODE  # the host keeps the answers for equal pods")
        if ExtensionPoint.PRE_FILTER not in points:
            names.add("EventInterest")
            attributes.append('events = (EventInterest("Node", ("add", "update.labels")),)')
    lines = [line for part in parts for line in part.lines]
    standard = ["import logging"] * any("LOG." in part.methods for part in parts)
    abc = ["Mapping"] * bool(lines) + ["Sequence"] * any("Sequence[" in part.methods for part in parts)
    standard += [f"from collections.abc import {', '.join(abc)}"] if abc else []
    standard += ["from typing import Any"] if lines else []
    others = ["import numpy as np"] * any("np." in part.methods for part in parts)
    if lines:
        names |= {"Handle", "PluginArgsError"}
    listed = "".join(f"    {name},\n" for name in sorted(names, key=lambda name: (name[0].islower(), name)))
    others.append(f"from berth_sdk import (\n{listed})")
    others += ["from numpy.typing import NDArray"] * any("NDArray" in part.methods for part in parts)
    blocks = ["\n".join(block) for block in (standard, others) if block]
    text = f'"""{naming.cls}: a scheduling plugin for berth."""\n\nfrom __future__ import annotations\n\n'
    text += "\n\n".join(blocks) + "\n\n"
    if any("LOG." in part.methods for part in parts):
        text += "LOG = logging.getLogger(__name__)\n"
    text += "".join(f'{constant} = "{key}"\n' for constant, key in _keys(naming, points).items())
    text = (
        text.rstrip("\n")
        + f'\n\n\nclass {naming.cls}(Plugin):\n    """Say here what the plugin is for."""\n\n'
    )
    text += "".join(f"    {line}\n" for line in ['version = "0.1.0"', *attributes])
    if lines:
        text += "\n    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:\n"
        text += "".join(f"        {line}\n" for line in ["super().__init__(args, handle)", *lines])
    return text + "".join(_filled(part.methods, naming) for part in parts)


def _test(naming: Naming, points: Sequence[ExtensionPoint]) -> str:
    body = "\n".join(_filled(_PARTS[point].test, naming) for point in points if _PARTS[point].test)
    ours = sorted(key for key in _keys(naming, points) if f"{key}" in body)
    nodes = '\nNODES = [make_node("n1"), make_node("n2")]\n' if "NODES" in body else ""
    builders = [name for name in ("PluginHost", "make_node", "make_pod") if f"{name}(" in body + nodes]
    text = f'"""{naming.cls}, in the test host of the SDK: no server, no cluster."""\n\n'
    text += "from __future__ import annotations\n\n"
    text += "import pytest\n" * ("pytest." in body)
    text += "from berth_sdk import PluginArgsError\n" * ("PluginArgsError" in body)
    text += f"from berth_sdk.testing import {', '.join(builders)}\n"
    text += f"\nfrom {naming.module} import {', '.join([*ours, naming.cls])}\n"
    return f"{text}{nodes}\n{body}"


def configuration(naming: Naming, points: Sequence[ExtensionPoint], command: Sequence[str]) -> str:
    """Return a configuration in which the host starts the plugin as a child process, by `command`."""
    off = {ExtensionPoint.QUEUE_SORT: "PrioritySort", ExtensionPoint.BIND: "DefaultBinder"}
    enabled = "".join(
        f"    {point.config_name}: {{enabled: [{{name: {naming.cls}}}]"
        + (f", disabled: [{{name: {off[point]}}}]" if point in off else "")
        + "}\n"
        for point in points
        if point is not ExtensionPoint.NORMALIZE_SCORE
    )
    return _filled(_CONFIGURATION, naming, ENABLED=enabled.rstrip("\n"), COMMAND=json.dumps(list(command)))


_CONFIGURATION: Final = """\
# berth simulate -f cluster.yaml --config scheduler.yaml
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
$ENABLED
---
apiVersion: config.berth.io/v1alpha1
kind: BerthConfiguration
plugins:
- name: $CLASS
  # The host starts the plugin. As a sidecar it has an endpoint in place of the command:
  # endpoint: unix:///run/berth/plugins/$NAME.sock
  command: $COMMAND
"""
CLUSTER: Final = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: web, image: web, resources: {requests: {cpu: 500m}}}]}
"""
_PYPROJECT: Final = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$NAME"
version = "0.1.0"
description = "A scheduling plugin for berth"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["berth-sdk[server]>=$SDK"]

[project.optional-dependencies]
test = ["pytest"]

[project.entry-points."berth.plugins"]
$CLASS = "$MODULE:$CLASS"

[tool.hatch.build.targets.wheel]
packages = ["$MODULE"]

[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
"""
_DOCKERFILE: Final = """\
# A sidecar of the scheduler: docker build -t $NAME:0.1.0 .
# Both containers mount the volume with the socket at /run/berth/plugins.
FROM python:3.12-slim
COPY . /src
RUN pip install --no-cache-dir /src && rm -r /src
USER 65532:65532
ENV BERTH_PLUGIN_ENDPOINT=unix:///run/berth/plugins/$NAME.sock
ENTRYPOINT ["berth-sdk", "serve", "$CLASS"]
"""
_WORKFLOW: Final = """\
name: test
on: [push, pull_request]
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
    - uses: actions/checkout@v4
    - uses: actions/setup-python@v5
      with: {python-version: "3.12"}
    - run: pip install -e '.[test]'
    - run: berth-sdk check $MODULE:$CLASS
    - run: pytest
"""
_README: Final = """\
# $NAME

A scheduling plugin for berth, at the extension points $POINTS.

```sh
python -m venv .venv && . .venv/bin/activate
pip install -e '.[test]'
pytest
berth-sdk check $MODULE:$CLASS
berth simulate -f cluster.yaml --config scheduler.yaml
```

While you write, in one terminal:

```sh
berth-sdk serve --reload $MODULE:$CLASS --listen unix:/tmp/$NAME.sock
```

As a sidecar: `docker build -t $NAME:0.1.0 .`, and run it in the scheduler's pod with a volume for the socket.
"""
