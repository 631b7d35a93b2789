"""Generate docs/reference/metrics.md from `berth_host.metrics.families`."""

from __future__ import annotations

from collections.abc import Iterable

from berth_host.config.emulation import NO_EMULATION
from berth_host.metrics.families import BERTH, KUBE_SCHEDULER, POD_LIMIT, POD_REQUEST
from berth_host.metrics.family import Family

from docs.reference.markdown import code, codes, table


def kube_families() -> str:
    """Return a table of kube-scheduler's families, as the version has them that is followed by default."""
    described = NO_EMULATION.metrics
    return _families([described.get(family.name) or family for family in KUBE_SCHEDULER])


def berth_families() -> str:
    """Return a table of berth's own families."""
    return _families(BERTH)


def resource_families() -> str:
    """Return a table of the families of `/metrics/resources`."""
    return _families((POD_REQUEST, POD_LIMIT))


def _families(families: Iterable[Family]) -> str:
    rows = (
        (
            code(family.name),
            family.kind.value,
            family.stability,
            codes(family.labels),
            family.help if not family.gate else f"{family.help} Needs {code(family.gate)}.",
        )
        for family in sorted(families, key=lambda family: family.name)
    )
    return table(("Family", "Type", "Stability", "Labels", "What it says"), rows)
