"""Two equal clusters with the default plugins: in one every plugin is asked about everything, in the other
answers are kept.

The state machine of `tests/host/framework/kept/test_keep_answers.py`: after any sequence of events both
come to the same for every pod: verdicts, reasons, scores, which plugins skip, the best nodes, and why no node
fits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from berth_host.app.alone import FrameworkAlone
from berth_host.cache.snapshot import Snapshot
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.loading import load_configuration
from berth_host.cycle.attempt import SearchStart
from berth_host.cycle.chooser import SmallestName
from berth_host.cycle.nominations import Nominations
from berth_host.cycle.schedule_one import Algorithm
from berth_host.explain.fit_error import fit_error_message
from berth_host.plugins.registry import ClassRegistry
from berth_host.queue.nominated_columns import NominatedColumns
from berth_sdk.kube_object import ObjectRef
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.testing import make_node
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from support.kept_objects import HOST, LABELS, NAMES, NODES, OBJECTS, PODS, kube_object
from support.kept_plugins import Census, Fickle, Moody, Sulky

NUMBERS = st.integers(0, 4)
FORMS = st.sampled_from(sorted(OBJECTS)).flatmap(
    lambda which: st.tuples(st.just(which), st.integers(0, len(OBJECTS[which]) - 1))
)


def _node(fields: Mapping[str, Any], number: int) -> Node:
    labels = {**fields.get("labels", {}), HOST: f"n{number}"}
    return make_node(f"n{number}", **{"cpu": 4, "memory": "8Gi", "pods": 9, **fields, "labels": labels})


PLUGINS = {"Census": Census, "Fickle": Fickle, "Moody": Moody}
# At Filter they stand in front, among those whose verdicts are put together.
CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    filter: {enabled: [{name: Census}, {name: Fickle}]}
    multiPoint: {enabled: [{name: Census, weight: 3}, {name: Fickle}, {name: Moody}]}
"""


class KeptMachine(RuleBasedStateMachine):
    """Whatever happens, happens to both clusters."""

    configuration: ClassVar[str] = CONFIGURATION
    plugins: ClassVar[Mapping[str, type]] = PLUGINS

    def __init__(self) -> None:
        super().__init__()
        configuration = load_configuration(
            self.configuration, source="test", registered=ClassRegistry(self.plugins).points()
        )
        self.both = self.made(configuration)
        Fickle.fails = ""
        Moody.is_closed = False
        self.placed: dict[str, Pod] = {}
        self.nominated: dict[str, Pod] = {}
        self.columns = [NominatedColumns() for _ in self.both]
        self.nominations = [Nominations(columns, lambda: 0.0) for columns in self.columns]
        for number in range(3):
            self.node_comes_or_changes(NODES[number], number)

    def made(self, configuration: LoadedConfiguration) -> tuple[FrameworkAlone, FrameworkAlone]:
        """The cluster in which answers are kept, and the one in which they are not."""
        return (
            FrameworkAlone(configuration, plugins=self.plugins),
            FrameworkAlone(configuration, plugins=self.plugins, keep_answers=False),
        )

    def run(self, said: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
        """Run one cycle to its end."""
        return asyncio.run(said)

    # --- events ------------------------------------------------------------------------------------

    @rule(fields=st.sampled_from(NODES), number=NUMBERS)
    def node_comes_or_changes(self, fields: Mapping[str, Any], number: int) -> None:
        for alone in self.both:
            alone.add_node(_node(fields, number))

    @rule(number=NUMBERS)
    def node_goes(self, number: int) -> None:
        for alone in self.both:
            info = alone.cache.node_info(f"n{number}")
            if info is not None and info.node is not None:
                alone.cache.remove_node(f"n{number}")

    @rule()
    def snapshot_is_begun_anew(self) -> None:
        for alone in self.both:
            alone.snapshot = Snapshot(alone.objects)
        # Theirs are slots of the snapshot that they saw first.
        self.columns = [NominatedColumns() for _ in self.both]
        self.nominations = [Nominations(columns, lambda: 0.0) for columns in self.columns]
        self._nominate({pod.nominated_node for pod in self.nominated.values()})

    @rule(pod=PODS, uid=st.sampled_from("abcdef"), number=NUMBERS, assumed=st.booleans())
    def pod_comes(self, pod: Pod, uid: str, number: int, assumed: bool) -> None:
        if uid in self.placed:
            return
        placed = self.placed[uid] = replace(pod, name=uid, uid=uid, node_name=f"n{number}")
        for alone in self.both:
            (alone.cache.assume if assumed else alone.cache.add_pod)(placed)

    @rule(uid=st.sampled_from("abcdef"), labels=st.sampled_from((*LABELS, None)))
    def pod_changes_or_goes(self, uid: str, labels: Mapping[str, str] | None) -> None:
        pod = self.placed.pop(uid, None)
        if pod is None:
            return
        changed = None if labels is None else replace(pod, labels=labels)
        for alone in self.both:
            if alone.cache.is_assumed(uid):
                alone.cache.add_pod(pod)
            if changed is None:
                alone.cache.remove_pod(pod)
            else:
                alone.cache.update_pod(pod, changed)
        if changed is not None:
            self.placed[uid] = changed

    @rule(form=FORMS)
    def object_comes_changes_or_goes(self, form: tuple[tuple[str, str], int]) -> None:
        which, number = form
        raw = OBJECTS[which][number]
        shown = raw or next(one for one in OBJECTS[which] if one is not None)
        namespace = shown["metadata"].get("namespace", "")
        for alone in self.both:
            if raw is None:
                alone.objects.remove(which[0], ObjectRef(name=which[1], namespace=namespace))
            else:
                alone.objects.put(which[0], kube_object(raw))

    @rule()
    def logs_forget(self) -> None:
        """So much moved that they do not reach back."""
        for alone in self.both:
            alone.snapshot.update(alone.cache)
            alone.snapshot.columns.moved.forget()
            alone.snapshot.columns.node_moved.forget()

    @rule(pod=PODS, point=st.sampled_from(("filter", "score")))
    def plugin_fails(self, pod: Pod, point: str) -> None:
        """Run a cycle in which a plugin fails: its answers must not be kept. Both clusters run the cycle:
        a plugin remembers which terms it has ever seen.
        """
        for alone in self.both:
            alone.snapshot.update(alone.cache)  # so that both give out their slots alike
        Fickle.fails = point
        for alone, nominations in zip(self.both, self.nominations, strict=True):
            self.run(self._said(alone, nominations, pod))
        Fickle.fails = ""

    @rule(is_closed=st.booleans())
    def mood_changes(self, is_closed: bool) -> None:
        """Nothing that the host can see."""
        Moody.is_closed = is_closed

    @rule(pod=PODS, number=st.sampled_from((0, 1, 2, 3, 4, None)))
    def nomination_comes_moves_or_goes(self, pod: Pod, number: int | None) -> None:
        before = self.nominated.pop(pod.uid, None)
        if number is not None:
            self.nominated[pod.uid] = replace(pod, nominated_node=f"n{number}")
        self._nominate({before.nominated_node if before else f"n{number}", f"n{number}"})

    def _nominate(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            here = [one for one in self.nominated.values() if one.nominated_node == name]
            for columns in self.columns:
                columns.set(name, here)

    # --- the law -----------------------------------------------------------------------------------

    @rule(pod=PODS, others=st.sets(st.sampled_from(NAMES), max_size=2))
    def cycles(self, pod: Pod, others: set[str]) -> None:
        """The pod, and others that are like it but for their names and a label, one after the other."""
        for name in (pod.name, *sorted(others)):
            self._cycle(replace(pod, name=name, uid=name, labels={**pod.labels, "own": name}))
            self._cycle(pod)

    def _cycle(self, pod: Pod) -> None:
        own = self.nominated.get(pod.uid)
        if own is not None:
            pod = replace(pod, nominated_node=own.nominated_node)
        kept, asked = (
            self.run(self._said(alone, nominations, pod))
            for alone, nominations in zip(self.both, self.nominations, strict=True)
        )
        assert kept == asked, {
            what: (kept.get(what), asked.get(what))
            for what in kept.keys() | asked.keys()
            if kept.get(what) != asked.get(what)
        }

    async def _said(self, alone: FrameworkAlone, nominations: Nominations, pod: Pod) -> dict[str, Any]:
        cycle, framework = alone.cycle(pod), alone.framework
        nodes = cycle.nodes
        if not len(nodes):
            return {}
        cycle.nominated = nominations.counted_for(pod, nodes)
        found = await Algorithm(framework, SmallestName()).find_feasible(cycle, SearchStart())
        nominations.release()
        statuses = cycle.statuses
        assert statuses is not None
        said: dict[str, Any] = {
            "status": found,
            "verdicts": {name: statuses.status_of(name) for name in nodes.names},
            "rejected by": [
                (status, sorted(name for name, out in zip(nodes.names, rows.tolist(), strict=True) if out))
                for status, rows in cycle.pre_filter.rejected_rows(nodes)
            ],
            # VolumeBinding signs NEUTRAL: it is asked about no claim, and yet its scores of 0 count.
            "skipped": (cycle.skip_filter, cycle.skip - {"VolumeBinding"}),
            "fit error": fit_error_message(
                len(nodes), statuses.reasons(), pre_filter_message=cycle.pre_filter.message
            ),
        }
        if found.is_success and len(cycle.feasible):
            left = nodes if len(cycle.feasible) == len(nodes) else nodes.take(cycle.feasible)
            table = await framework.run_score(cycle, left)
            if isinstance(table, Status):
                return {**said, "failed": table}
            # By name: a host gives out the slot of a node that is gone when all served copies have confirmed
            # it, so the order of the rows may differ between the two clusters.
            said["total"] = dict(zip(left.names, table.total.tolist(), strict=True))
            said["best"] = sorted(left.names[row] for row in table.best().tolist())
            said["no scores"] = sorted(table.skipped)
            said["scores"] = {
                one.plugin: dict(
                    zip(left.names, zip(one.raw.tolist(), one.normalized.tolist(), strict=True), strict=True)
                )
                for one in table.plugins
            }
        return said


class OneStepMachine(KeptMachine):
    """The same, and most pods take one step: no plugin without `depends_on` is asked about their nodes."""

    configuration = CONFIGURATION.replace("Moody", "Sulky")
    plugins: ClassVar[Mapping[str, type]] = {"Census": Census, "Fickle": Fickle, "Sulky": Sulky}
