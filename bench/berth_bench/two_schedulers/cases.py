"""The cases of `berth bench two-schedulers`: which two schedulers, of which names, on which nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import yaml

from berth_bench.versus import objects

Json: TypeAlias = dict[str, Any]
CPU_M: Final = 100
"""The CPU request of each pod, in millicores. The CPU of a node is a multiple of it."""
POOL: Final = "pool"
"""The label of the nodes that parts them."""
_EMULATED: Final = ("--emulated-version=1.37",)


@dataclass(frozen=True, slots=True)
class Program:
    """A scheduler's program. `flags`: further flags."""

    is_berth: bool
    flags: tuple[str, ...] = ()


KUBE: Final = Program(is_berth=False)
BERTH: Final = Program(is_berth=True)
BERTH_AS_KUBE: Final = Program(is_berth=True, flags=_EMULATED)
"""berth without the last look before a Binding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Two schedulers. `one_name`: both serve the same schedulerName, without a Lease. `parted`: each has
    half of the nodes, which its pods select.
    """

    name: str
    title: str
    first: Program
    second: Program
    one_name: bool = False
    parted: bool = False

    @property
    def scheduler_names(self) -> tuple[str, str]:
        """The names that the two schedulers serve."""
        return ("first", "first" if self.one_name else "second")

    def pods(self, count: int) -> Iterator[Json]:
        """Yield the pods, by turns for one scheduler and the other."""
        for number in range(count):
            turn = number % 2
            spec: Json = {"schedulerName": self.scheduler_names[turn]}
            if self.parted:
                spec["nodeSelector"] = {POOL: str(turn)}
            yield objects.pod(f"{self.name}-{number}", cpu=f"{CPU_M}m", **spec)


CASES: Final = (
    Case(name="kube-kube", title="two kube-schedulers", first=KUBE, second=KUBE),
    Case(
        name="kube-berth-emulated",
        title="kube-scheduler and an emulating berth",
        first=KUBE,
        second=BERTH_AS_KUBE,
    ),
    Case(name="kube-berth", title="kube-scheduler and berth", first=KUBE, second=BERTH),
    Case(
        name="berth-berth", title="two berths of one name, no Lease", first=BERTH, second=BERTH, one_name=True
    ),
    Case(
        name="parted", title="kube-scheduler and berth, parted nodes", first=KUBE, second=BERTH, parted=True
    ),
)


def chosen(names: Sequence[str]) -> list[Case]:
    """Return the named cases, all without names. Raises KeyError with the name of an unknown one."""
    by_name = {case.name: case for case in CASES}
    return [by_name[name] for name in names] if names else list(CASES)


def nodes(count: int, places: int) -> Iterator[Json]:
    """Yield the nodes, which have room for `places` pods in all; one half has the label pool=0."""
    for number in range(count):
        here = places // count + (number < places % count)
        yield objects.node(f"node-{number}", cpu=f"{here * CPU_M}m", pods="1000", pool=str(number % 2))


def configuration(name: str) -> str:
    """Return the configuration of a scheduler that serves `name`, as YAML without clientConnection."""
    return yaml.safe_dump(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "profiles": [{"schedulerName": name}],
        }
    )
