"""Cases that ask one question in two ways that the contract calls equal: the answers must be equal too.

A delta and the full state of the same version; a set of nodes written in two ways; a scenario and the state
that it describes; cycles one after the other and at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from berth_sdk.conformance import checks
from berth_sdk.conformance.answers import Answers, Asking, answers, around, must_agree, sized
from berth_sdk.conformance.case import BrokenError, Subject, case
from berth_sdk.conformance.host import PROFILE, Host, bitmap_of, skipped
from berth_sdk.conformance.scheduling import judges, pure_call, scenario_node, simulates
from berth_sdk.conformance.stateful import judges_by_state, lacks_state
from berth_sdk.conformance.way import lacking
from berth_sdk.conformance.world import GI, MODULUS, Resident, WorldNode, in_chunks, in_pieces
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.plugin.v1 import scheduling_pb2 as scheduling

_MANY: Final = 300
_OF_PODS: Final = frozenset({identity.DeclaredNeed.KIND_POD_SUMMARY, identity.DeclaredNeed.KIND_POD_OBJECT})
_FAR: Final = 1000
"""The number that is added to the indices of nodes where the kit renumbers them."""


def _is_snapshot(subject: Subject) -> bool:
    return subject.is_snapshot and judges(subject)


def _is_names(subject: Subject) -> bool:
    return not subject.is_snapshot and judges(subject)


# --- sets of nodes --------------------------------------------------------------------------------------


@case(
    "nodeSet.complement",
    "core",
    "The same nodes as a bitmap, as the complement of the others, and with zero bytes at the end: the same"
    " answers.",
    _is_snapshot,
)
def _complement(host: Host) -> None:
    pods = around(host, host.world.nodes[1], host.world.nodes[3])

    def complement(of: Host, nodes: Sequence[WorldNode]) -> pb.NodeSet:
        listed = {node.index for node in nodes}
        others = [index for index in of.world.nodes if index not in listed]
        return pb.NodeSet(complement=True, bitmap=bitmap_of(others))

    def bitmap(of: Host, nodes: Sequence[WorldNode]) -> pb.NodeSet:
        return pb.NodeSet(bitmap=bitmap_of(node.index for node in nodes))

    def longer(of: Host, nodes: Sequence[WorldNode]) -> pb.NodeSet:
        return pb.NodeSet(bitmap=bitmap(of, nodes).bitmap + bytes(9))

    def longer_complement(of: Host, nodes: Sequence[WorldNode]) -> pb.NodeSet:
        made = complement(of, nodes)
        made.bitmap += bytes(9)
        return made

    # About a part of the nodes too: PreFilter always has all of them, so the first call is Filter or Score.
    def some(named: Any) -> Answers:
        found = answers(host, pods, named=named)
        for part in (host.world.candidates[1::2], host.world.candidates[:-2]):
            for number, pod in enumerate(pods):
                asking = Asking(host, pod, named=named, skips_pre_filter=True)
                asking.what += f" (pod {number}, {len(part)} nodes)"
                asking.left = list(part)
                for _ in asking.steps():
                    pass
                found |= asking.answers
        return found

    for other, what in (
        (complement, "the complement of the others"),
        (longer, "a bitmap with zero bytes at its end"),
        (longer_complement, "a complement with zero bytes at its end"),
    ):
        must_agree(
            partial(_both, partial(some, bitmap), partial(some, other)),
            f"candidates as {what} get another answer than the same nodes as a bitmap",
        )


@case(
    "nodeSet.order",
    "core",
    "The candidates in another order get the same answers; scores are in the order of the request.",
    _is_names,
)
def _order(host: Host) -> None:
    pods = around(host, host.world.nodes[1])

    def backwards() -> Answers:
        found: Answers = {}
        for number, pod in enumerate(pods):
            asking = Asking(host, pod, named=_names)
            asking.what += f" (pod {number})"
            asking.left = list(reversed(asking.left))
            for _ in asking.steps():
                pass
            found |= asking.answers
        return found

    must_agree(
        lambda: (answers(host, pods, named=_names), backwards()),
        "the same nodes in another order get another answer",
    )


def _both(first: Callable[[], Answers], second: Callable[[], Answers]) -> tuple[Answers, Answers]:
    return first(), second()


def _names(_host: Host, nodes: Sequence[WorldNode]) -> pb.NodeSet:
    return pb.NodeSet(names=[node.name for node in nodes])


# --- a delta, and the full state ------------------------------------------------------------------------


def _agrees_with_full(
    host: Host,
    what: str,
    *changes: Callable[[], pb.StateDelta],
    focus: Sequence[int] = (0, 3),
    in_call: bool = False,
) -> None:
    """Apply changes as deltas, and ask; then send the full state of that version, and ask the same."""

    def ask() -> tuple[Answers, Answers]:
        fresh(host)
        before = around(host, *(host.world.nodes[index] for index in focus if index in host.world.nodes))
        for change in changes:
            delta = change()
            if in_call:
                bring(host, delta)
            else:
                host.sync([delta])
        pods = before + around(
            host, *(host.world.nodes[index] for index in focus if index in host.world.nodes)
        )
        after_delta = answers(host, pods)
        host.sync([host.world.full()])
        return after_delta, answers(host, pods)

    must_agree(ask, f"{what}: the full state of the same version gets another answer than the delta")


def fresh(host: Host) -> None:
    """Begin with the nodes of a new world."""
    host.world = type(host.world)(host.subject, host.target.pod)
    host.sync([host.world.full()])


def bring(host: Host, delta: pb.StateDelta) -> None:
    """Send a delta with a call."""
    rpc, cycle = pure_call(host)
    cycle.ask(rpc, cycle.context(complete=True, delta=delta), candidates=host.candidates())


@case(
    "delta.usage",
    "stateful",
    "A node whose usage alone is in the delta keeps its name, its summary and its object.",
    judges_by_state,
)
def _usage_alone(host: Host) -> None:
    for in_call in (False, True):
        _agrees_with_full(
            host,
            "a delta with the usage of nodes",
            lambda: host.world.change(0, 3000, 12 * GI),
            lambda: host.world.change(3, 2000, 4 * GI),
            in_call=in_call,
        )


@case(
    "delta.summary",
    "stateful",
    "A node whose summary alone is in the delta keeps its name, its usage and its pods.",
    judges_by_state,
)
def _summary_alone(host: Host) -> None:
    for in_call in (False, True):
        _agrees_with_full(
            host,
            "a delta with the summary of nodes",
            lambda: host.world.resize(3, cpu_milli=20_000, memory_bytes=80 * GI, zone="zone-5"),
            lambda: host.world.resize(2, room=2),
            lambda: host.world.resize(1, tainted=True),
            focus=(2, 3),
            in_call=in_call,
        )


@case(
    "delta.summary-less",
    "stateful",
    "A taint, a label and an amount that a node's summary has no more are gone.",
    judges_by_state,
)
def _summary_less(host: Host) -> None:
    for in_call in (False, True):
        _agrees_with_full(
            host,
            "a delta with a summary that has less than the one before",
            lambda: host.world.resize(1, tainted=True),
            lambda: host.world.resize(1, tainted=False),
            lambda: host.world.resize(3, zone=""),
            lambda: host.world.resize(0, memory_bytes=0),
            focus=(1, 3),
            in_call=in_call,
        )


@case(
    "delta.generation",
    "stateful",
    "A node of which the delta says the generation alone keeps everything.",
    judges_by_state,
)
def _generation_alone(host: Host) -> None:
    def touch() -> pb.StateDelta:
        base = host.world.version
        host.world.put(3, next(iter(host.world.nodes[3].pods.values())))
        return host.world.delta(base, [host.world.state(host.world.nodes[3], ())])

    _agrees_with_full(host, "a delta with the generation of a node", touch, focus=(3, 2))


@case(
    "delta.pods",
    "stateful",
    "Pods of a node come, change and leave: the others stay, and a complete list drops those it lacks.",
    judges_by_state,
)
def _pods(host: Host) -> None:
    def uid(place: int) -> str:
        return list(host.world.nodes[3].pods)[place]

    steps: dict[str, Callable[[], pb.StateDelta]] = {
        "a delta with a pod that came": lambda: host.world.change(3, 1000, 2 * GI),
        "a delta with a pod that left": lambda: host.world.leave(3, uid(0)),
        "a delta with a pod that changed": lambda: host.world.edit(3, uid(0), 7000, 30 * GI),
        "a delta with a complete list of pods": lambda: host.world.replace_pods(
            3, Resident("kit-other", 2200, 6 * GI)
        ),
        "a delta in which the last pod leaves": lambda: host.world.replace_pods(3),
    }
    for what, step in steps.items():
        _agrees_with_full(host, what, step, focus=(3,))
    _agrees_with_full(host, "deltas with pods one after the other", *steps.values(), focus=(3,))


@case(
    "delta.moved-pod",
    "stateful",
    "A pod that left one node and came to another one in the same delta is on the other one.",
    judges_by_state,
)
def _moved_pod(host: Host) -> None:
    def move(there: int, here: int, *, backwards: bool) -> pb.StateDelta:
        world = host.world
        base = world.version
        pod = next(iter(world.nodes[there].pods.values()))
        world.take_pod(there, pod.uid)
        world.put(here, pod)
        states = [
            world.state(world.nodes[there], {"usage"}, removed=[pod.uid]),
            world.state(world.nodes[here], {"usage"}, pods=[pod]),
        ]
        return world.delta(base, states[::-1] if backwards else states)

    for backwards in (False, True):
        _agrees_with_full(
            host,
            "a delta with a pod that moved",
            partial(move, 3, 0, backwards=backwards),
            partial(move, 2, 9, backwards=not backwards),
            focus=(0, 9),
        )


@case(
    "delta.pod-names",
    "stateful",
    "Pods are told apart by uid: two of one name in two namespaces, or one made again, are different pods.",
    lambda subject: judges_by_state(subject) and bool(subject.kinds & _OF_PODS),
)
def _pod_names(host: Host) -> None:
    def ask(first: str, other: str, again: str) -> Answers:
        fresh(host)
        pods = around(host, host.world.nodes[3])
        one = Resident("kit-uid-1", 3000, 9 * GI, name=first)
        beside = Resident("kit-uid-2", 2000, 7 * GI, name=other, namespace="kit-other")
        host.sync([host.world.replace_pods(3, one, beside)])
        found = {f"{asked}, two pods": said for asked, said in answers(host, pods).items()}
        base = host.world.version
        host.world.take_pod(3, one.uid)
        later = Resident("kit-uid-3", 5000, 20 * GI, name=again)
        host.world.put(3, later)
        states = [host.world.state(host.world.nodes[3], {"usage"}, pods=[later], removed=[one.uid])]
        host.sync([host.world.delta(base, states)])
        return found | answers(host, pods)

    must_agree(
        lambda: (ask("kit-one", "kit-other", "kit-later"), ask("kit-twin", "kit-twin", "kit-twin")),
        "pods of one name on a node get another answer than pods of different names",
    )


@case(
    "delta.index-again",
    "stateful",
    "An index that a removed node had may get another node, which has nothing of the one before.",
    judges_by_state,
)
def _index_again(host: Host) -> None:
    _agrees_with_full(
        host,
        "an index with another node",
        lambda: host.world.drop(3),
        lambda: host.world.come(3, "kit-node-late", cpu_milli=5000, memory_bytes=20 * GI, zone="zone-7"),
        lambda: host.world.change(3, 300, GI),
        lambda: host.world.drop(17),
        focus=(3, 0),
    )


@case(
    "delta.pieces",
    "stateful",
    "A large delta in chunks, with the pods of one node in several pieces, counts as one.",
    judges_by_state,
)
def _pieces(host: Host) -> None:
    def ask(size: int) -> tuple[Answers, Answers]:
        fresh(host)
        world = host.world
        base = world.version
        late = world.add(20, "kit-node-late")
        late.cpu_milli, late.memory_bytes, late.zone = 9000, 40 * GI, "zone-4"
        for number in range(4):
            world.put_pod(20, 700 + number, GI)
        world.nodes[3].pods.clear()
        for number in range(3):
            world.put(3, Resident(f"kit-piece-{number}", 900, 3 * GI))
        world.put_pod(9, 2000, 4 * GI)
        nodes = [*in_pieces(world.state(late)), *in_pieces(world.state(world.nodes[3], {"usage", "pods"}))]
        nodes.append(world.state(world.nodes[9], {"usage"}, pods=list(world.nodes[9].pods.values())))
        world.remove(1)
        whole = world.delta(base, nodes, removed=[1])
        pods = around(host, *(world.nodes[index] for index in (20, 3, 9)))
        host.sync(in_chunks(whole, size))
        after_delta = answers(host, pods)
        host.sync([world.full()])
        return after_delta, answers(host, pods)

    def ask_full(size: int) -> tuple[Answers, Answers]:
        fresh(host)
        world = host.world
        pods = around(host, world.nodes[3], world.nodes[2])
        whole = world.full()
        pieces = [piece for state in whole.upserts for piece in in_pieces(state)]
        host.sync(in_chunks(world.delta(None, pieces), size))
        in_pieces_ = answers(host, pods)
        host.sync([world.full()])
        return in_pieces_, answers(host, pods)

    for size in (1, 2, 100):
        must_agree(partial(ask, size), f"a delta in chunks of {size} differs from the full state")
        must_agree(
            partial(ask_full, size),
            f"the full state in chunks of {size}, with a node in several pieces, differs from one message",
        )


@case(
    "state.renumbered",
    "stateful",
    "The same nodes under other indices, beyond 1000 and out of order, get the same answers.",
    _is_snapshot,
)
def _renumbered(host: Host) -> None:
    def ask() -> tuple[Answers, Answers]:
        fresh(host)
        pods = around(host, host.world.nodes[3], host.world.nodes[1])
        first = answers(host, pods)
        world = host.world
        world.epoch += 1
        moved = [replace(node, index=_FAR - 61 * place) for place, node in enumerate(world.candidates)]
        world.nodes = {node.index: node for node in moved}
        host.sync([world.full()])
        return first, answers(host, pods)

    must_agree(ask, "the same nodes with other indices get another answer")


@case(
    "state.many-nodes",
    "stateful",
    "A cluster of 300 nodes is answered as a small one: each node that is like another one gets its answer.",
    judges_by_state,
)
def _many_nodes(host: Host) -> None:
    fresh(host)
    pods = around(host, host.world.nodes[3])
    for number in range(_MANY):
        node = host.world.add(100 + 3 * number, f"kit-many-{number}")
        node.cpu_milli = 100 * (number % 90)

    def ask() -> tuple[Answers, Answers]:
        host.sync(host.world.chunks(64))
        host.sync([host.world.change(100 + 3 * (_MANY - 1), 500, GI)])
        changed = answers(host, pods)
        host.sync([host.world.full()])
        return changed, answers(host, pods)

    must_agree(ask, "of 300 nodes, a delta gets another answer than the full state")


@case(
    "state.large-numbers",
    "stateful",
    "Epochs and generations may be as large as the contract allows: below 2^53, and their sum modulo 2^53.",
    judges_by_state,
)
def _large_numbers(host: Host) -> None:
    fresh(host)
    world = host.world
    world.generation = MODULUS - 1000
    for index in world.nodes:
        world.put_pod(index)
    host.sync([world.full()])
    host.sync([world.change(0)])
    # Epochs that differ in their upper half alone, at the same generation.
    world.epoch += 2**33
    lacks_state(host, None)
    host.sync([world.full()])
    # A new epoch begins with a small generation again.
    fresh(host)
    bring(host, host.world.change(1))


# --- scenarios --------------------------------------------------------------------------------------------


@case(
    "simulateFilter.usage",
    "core",
    "A scenario gets the answer that Filter gives when the pods of the scenario are really there or gone.",
    simulates,
)
def _simulated(host: Host) -> None:
    added = [Resident("kit-added", 3000, 12 * GI)]
    full = list(host.world.nodes[2].pods)
    scenarios = [
        (0, added, []),
        (3, added, []),
        (2, [], full),
        (2, [], full[:1]),
        (3, added, list(host.world.nodes[3].pods)[:1]),
        (7, [], list(host.world.nodes[7].pods)),
        (0, [], []),
        (8, [], list(host.world.nodes[8].pods)),
        (3, [], list(host.world.nodes[3].pods)),
    ]
    pods = []
    for index, more, less in scenarios:
        there = host.world.nodes[index]
        left = {uid: pod for uid, pod in there.pods.items() if uid not in less}
        left |= {pod.uid: pod for pod in more}
        pods += around(host, replace(there, pods=left))[1:]
    before = answers(host, pods)
    asked = [_simulation(host, pod, scenarios) for pod in pods]
    if all(one is None for one in asked):
        raise lacking(host, "PreFilter leaves out Filter for this pod")
    must_agree(lambda: (before, answers(host, pods)), "SimulateFilter changed what Filter answers")
    for place, (index, more, less) in enumerate(scenarios):
        fresh(host)
        for uid in less:
            host.world.take_pod(index, uid)
        for coming in more:
            host.world.put(index, coming)
        if host.subject.keeps_state:
            host.sync([host.world.full()])
        for pod, simulated in zip(pods, asked, strict=True):
            if simulated is None:
                continue
            real = _fits(host, pod, index)
            if real is not None and simulated[place] != real:
                what = f"{sum(p.cpu_milli for p in more)}m more" if more else f"{len(less)} pods less"
                raise BrokenError(
                    f"SimulateFilter answers {_said(simulated[place])} for a pod of {pod.requests['cpu']}m"
                    f" and {pod.requests['memory'] >> 20} MiB on kit-node-{index} with {what}; Filter answers"
                    f" {_said(real)} once the node is like that"
                )


def _said(fits: bool) -> str:
    return "SUCCESS" if fits else "a rejection"


def simulated(host: Host, pod: pb.PodSummary, profile: str) -> Answers:
    """Return what SimulateFilter says of a pod on each node as it is; nothing if the host would not ask."""
    nodes = host.world.candidates
    found = _simulation(host, pod, [(node.index, [], []) for node in nodes], profile)
    if found is None:
        return {}
    return {
        f"SimulateFilter of {node.name}, a pod of {pod.requests['cpu']}m": _said(fits)
        for node, fits in zip(nodes, found, strict=True)
    }


def _simulation(
    host: Host, pod: pb.PodSummary, scenarios: Sequence[Any], profile: str = PROFILE
) -> list[bool] | None:
    """Return for each scenario whether the pod fits; None: the host would not ask."""
    asking = Asking(host, pod, profile=profile)
    steps = asking.steps()
    if host.subject.has("PRE_FILTER"):
        next(steps, None)
        if next(steps, "over") == "over" and not any(key.startswith("Filter") for key in asking.answers):
            return None
    asked = [
        scheduling.Scenario(node=scenario_node(host, index, more, less)) for index, more, less in scenarios
    ]
    answer = asking.cycle.ask("SimulateFilter", scenarios=asked)
    if len(answer.statuses) != len(asked):
        raise BrokenError(
            f"SimulateFilter answers {len(answer.statuses)} statuses for {len(asked)} scenarios"
        )
    return [checks.is_success(checks.status("SimulateFilter", status)) for status in answer.statuses]


def _fits(host: Host, pod: pb.PodSummary, index: int) -> bool | None:
    """Return Filter's answer about one node; None: PreFilter decided about it."""
    found = answers(host, [pod])
    name = host.world.nodes[index].name
    said = {asked.partition(" ")[0] for asked in found if f" of {name}," in asked}
    if any(one.startswith("PreFilter") for one in said):
        return None
    whole = [asked for asked in found if asked.startswith("Filter,")]
    return not whole and "Filter" not in said


# --- cycles -----------------------------------------------------------------------------------------------


@case(
    "cycle.interleaved",
    "core",
    "Cycles of two different pods, whose calls alternate, get the answers that each gets alone.",
    judges,
)
def _interleaved(host: Host) -> None:
    small, large = sized(host, 100, GI), sized(host, 9500, 20 * GI)

    def ask() -> tuple[Answers, Answers]:
        alone = answers(host, [small, large])
        both = [Asking(host, small), Asking(host, large)]
        found: Answers = {}
        open_steps = []
        for number, asking in enumerate(both):
            asking.what += f" (pod {number})"
            open_steps.append(asking.steps())
        while open_steps:
            open_steps = [steps for steps in open_steps if next(steps, "over") is None]
        for asking in both:
            found |= asking.answers
        return alone, found

    must_agree(ask, "a cycle gets another answer when the calls of another cycle come in between")


@case(
    "cycle.changed-pod",
    "core",
    "A pod that was changed, with the same uid, is judged in its next cycle as it is then.",
    judges,
)
def _changed_pod(host: Host) -> None:
    small, large = sized(host, 100, GI), sized(host, 9500, 20 * GI)

    def ask() -> tuple[Answers, Answers]:
        alone = answers(host, [large])
        name = host.cycle().pod_name
        answers(host, [small], name=name)
        return alone, answers(host, [large], name=name)

    must_agree(ask, "a pod whose requests have grown since its last cycle gets another answer than a new pod")


# --- what the plugin declares -------------------------------------------------------------------------------

_NODE_ALONE: Final = (identity.DEPENDS_ON_NODE, identity.DEPENDS_ON_NODES)
_BUSIER: Final = (9, 0)
"""The nodes to which pods come."""
_RAW: Final = (
    identity.SCORE_NORMALIZATION_HOST_MAX,
    identity.SCORE_NORMALIZATION_HOST_MAX_REVERSED,
    identity.SCORE_NORMALIZATION_HOST_MIN_MAX,
    identity.SCORE_NORMALIZATION_NONE,
)


def _scores_alone(subject: Subject) -> bool:
    """Return True if a node's score depends on no other candidate."""
    return subject.plugin.normalization in _RAW or subject.plugin.host_keeps_answers


def _counts(host: Host, found: Answers) -> Answers:
    """Return the answers that what is declared speaks of."""
    if _scores_alone(host.subject):
        return found
    return {asked: said for asked, said in found.items() if not asked.startswith(("Score", "PreScore"))}


def _but(found: Answers) -> Answers:
    """Return the answers about the nodes to which no pods came."""
    parts = [f" of kit-node-{index}," for index in _BUSIER]
    return {asked: said for asked, said in found.items() if not any(part in asked for part in parts)}


def _bring_pods(host: Host, *indices: int) -> None:
    """Let pods come to nodes."""
    for index in indices:
        host.sync([host.world.change(index, 5000, 20 * GI)])


def _depends(subject: Subject) -> bool:
    known = (*_NODE_ALONE, identity.DEPENDS_ON_ROW)
    return judges_by_state(subject) and subject.plugin.depends_on in known


@case(
    "declared.depends-on",
    "stateful",
    "Answers change with nothing but what `depends_on` declares.",
    _depends,
)
def _depends_on(host: Host) -> None:
    is_row = host.subject.plugin.depends_on == identity.DEPENDS_ON_ROW

    def ask() -> tuple[Answers, Answers]:
        fresh(host)
        pods = around(host, host.world.nodes[0], host.world.nodes[9])
        before = answers(host, pods)
        _bring_pods(host, *_BUSIER)
        after = answers(host, pods)
        if is_row:
            before, after = _but(before), _but(after)
        return _counts(host, before), _counts(host, after)

    name = identity.DependsOn.Name(host.subject.plugin.depends_on)
    must_agree(ask, f"the plugin declares {name}, and pods that come to one node change another answer")


@case(
    "declared.pod-sensitivity",
    "stateful",
    "Pods that come change no verdict of Filter but those that `pod_sensitivity` declares.",
    lambda subject: (
        judges_by_state(subject)
        and subject.has("FILTER")
        and subject.plugin.pod_sensitivity in (identity.POD_SENSITIVITY_NONE, identity.POD_SENSITIVITY_NODE)
    ),
)
def _pod_sensitivity(host: Host) -> None:
    is_none = host.subject.plugin.pod_sensitivity == identity.POD_SENSITIVITY_NONE

    def ask() -> tuple[Answers, Answers]:
        fresh(host)
        pods = around(host, host.world.nodes[0], host.world.nodes[9])
        before = _verdicts(answers(host, pods))
        _bring_pods(host, *_BUSIER)
        after = _verdicts(answers(host, pods))
        return (before, after) if is_none else (_but(before), _but(after))

    name = identity.PodSensitivity.Name(host.subject.plugin.pod_sensitivity)
    must_agree(ask, f"the plugin declares {name}, and pods that come to one node change another verdict")


def _verdicts(found: Answers) -> Answers:
    return {asked: said for asked, said in found.items() if asked.startswith("Filter of")}


def _declares_reads(subject: Subject) -> bool:
    known = (identity.DEPENDS_ON_NODE, identity.DEPENDS_ON_ROW)
    return (
        judges_by_state(subject) and subject.plugin.HasField("reads") and (subject.plugin.depends_on in known)
    )


@case(
    "declared.reads",
    "stateful",
    "Answers about a node change with nothing but the columns that `reads` declares.",
    _declares_reads,
)
def _reads(host: Host) -> None:
    reads = host.subject.plugin.reads
    columns = set(reads.columns)
    of_pods = {
        identity.NODE_COLUMN_REQUESTED,
        identity.NODE_COLUMN_NON_ZERO_REQUESTED,
        identity.NODE_COLUMN_POD_COUNT,
        identity.NODE_COLUMN_HOST_PORTS,
    }
    zone = "topology.kubernetes.io/zone"
    changes: dict[str, Callable[[], pb.StateDelta]] = {}
    if not columns & of_pods:
        changes["the pods of a node"] = lambda: host.world.change(0, 5000, 20 * GI)
    if identity.NODE_COLUMN_ALLOCATABLE not in columns:
        changes["what a node has"] = lambda: host.world.resize(0, cpu_milli=500, memory_bytes=GI)
    if identity.NODE_COLUMN_LABELS not in columns and zone not in reads.label_keys:
        changes["the zone of a node"] = lambda: host.world.resize(0, zone="zone-9")
    if identity.NODE_COLUMN_TAINTS not in columns:
        changes["the taints of a node"] = lambda: host.world.resize(0, tainted=True)

    def ask(change: Callable[[], pb.StateDelta]) -> tuple[Answers, Answers]:
        fresh(host)
        pods = around(host, host.world.nodes[0])
        before = _counts(host, answers(host, pods))
        host.sync([change()])
        return before, _counts(host, answers(host, pods))

    for what, change in changes.items():
        must_agree(
            partial(ask, change),
            f"{what} changes an answer, and is none of the declared `reads`",
        )


@case(
    "declared.sign-fields",
    "core",
    "Pods that are equal in the declared `sign_fields` get the same answers.",
    lambda subject: (
        judges(subject)
        and subject.plugin.HasField("sign_fields")
        and subject.plugin.depends_on != identity.DEPENDS_ON_UNSPECIFIED
    ),
)
def _sign_fields(host: Host) -> None:
    fields = set(host.subject.plugin.sign_fields.fields)
    if any(field not in identity.PodField.values() for field in fields):
        raise skipped("the plugin declares a field of a pod that the kit does not know")
    base = sized(host, 500, GI)
    others: dict[str, pb.PodSummary] = {}

    def differs(name: str, field: int, **changed: Any) -> None:
        of_spec = name not in ("labels", "annotations")
        if field in fields or (of_spec and identity.POD_FIELD_SPEC in fields):
            return
        if of_spec and identity.DeclaredNeed.KIND_WHOLE_POD in host.subject.kinds:
            return  # the summary and the object of a pod say the same
        others[name] = pb.PodSummary()
        others[name].CopyFrom(base)
        others[name].MergeFrom(pb.PodSummary(**changed))

    differs("labels", identity.POD_FIELD_LABELS, labels={"app": "other", "tier": "kit"})
    differs("annotations", identity.POD_FIELD_ANNOTATIONS, annotations={"kit.example.com/other": "1"})
    differs("priority", identity.POD_FIELD_PRIORITY, priority=base.priority + 1000)
    large = {"cpu": 9500, "memory": 40 * GI}
    differs("requests", identity.POD_FIELD_REQUESTS, requests=large, non_zero_requests=large)
    zone = {"topology.kubernetes.io/zone": "zone-1"}
    differs("node selector", identity.POD_FIELD_NODE_SELECTOR, node_selector=zone)
    tolerates = [pb.Toleration(operator="Exists")]
    differs("tolerations", identity.POD_FIELD_TOLERATIONS, tolerations=tolerates)
    differs("scheduler name", identity.POD_FIELD_SCHEDULER_NAME, scheduler_name="another-scheduler")

    def ask(other: pb.PodSummary) -> tuple[Answers, Answers]:
        return tuple(_of_one(answers(host, [pod])) for pod in (base, other))  # type: ignore[return-value]

    for name, other in others.items():
        must_agree(
            partial(ask, other),
            f"pods that differ in their {name} alone get different answers, and it is none of `sign_fields`",
        )


def _of_one(found: Answers) -> Answers:
    """Return the answers about one pod, without what it requests."""
    return {asked.partition(",")[0]: said for asked, said in found.items()}


@case(
    "declared.normalization",
    "core",
    "Where a node's score depends on no other candidate, each node gets the same score among fewer.",
    lambda subject: subject.has("SCORE") and _scores_alone(subject),
)
def _normalization(host: Host) -> None:
    pod = sized(host, 100, GI)

    def ask() -> tuple[Answers, Answers]:
        whole = Asking(host, pod)
        for _ in whole.steps():
            pass
        scores = _scores(whole.answers)
        left = whole.left
        found: Answers = {}
        for part in (left[::2], left[1::2]):
            if len(part) < 2:
                continue
            asking = Asking(host, pod)
            steps = asking.steps()
            for _ in range(host.subject.has("PRE_FILTER") + host.subject.has("FILTER")):
                next(steps, None)
            asking.left = list(part)
            for _ in asking.score():
                pass
            found |= _scores(asking.answers)
        return {asked: said for asked, said in scores.items() if asked in found}, found

    must_agree(ask, "a node gets another score among other candidates")


def _scores(found: Answers) -> Answers:
    """Return the scores by node, wherever they came."""
    return {
        asked.partition(" of ")[2]: said
        for asked, said in found.items()
        if asked.partition(" of ")[0] in ("Score", "PreFilter.early_scores", "Filter.early_scores")
    }


@case(
    "declared.kept-answers",
    "core",
    "Where the host keeps answers, Filter and Score need no earlier call, and set no token and no value.",
    lambda subject: subject.plugin.host_keeps_answers and subject.has("FILTER", "SCORE"),
)
def _kept_answers(host: Host) -> None:
    pods = around(host, host.world.nodes[1])
    whole = Asking(host, pods[0])
    is_first = True
    for _ in whole.steps():
        if host.subject.has("PRE_FILTER") and is_first and whole.cycle.token:
            raise skipped("PreFilter sets a token, so the host calls it in each cycle")
        is_first = False
    if whole.cycle.token and not host.subject.has("PRE_FILTER", "PRE_SCORE"):
        raise BrokenError("Filter or Score sets a token, and the plugin declares host_keeps_answers")

    def verdicts(**how: Any) -> Answers:
        found = answers(host, pods, **how)
        return {asked: said for asked, said in found.items() if asked.startswith("Filter")}

    decided = (said for asked, said in answers(host, pods).items() if asked.startswith("PreFilter"))
    if any(said != "CODE_SUCCESS" for said in decided):
        raise skipped("PreFilter decides about nodes, and the host uses that answer too")
    must_agree(
        lambda: (verdicts(), verdicts(skips_pre_filter=True)),
        "Filter answers otherwise without PreFilter, and the plugin declares host_keeps_answers",
    )
