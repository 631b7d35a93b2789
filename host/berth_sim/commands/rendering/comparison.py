"""A comparison of two configurations -> the text of `berth compare` without `-o`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from berth_host.cli.rendering.columns import columns, count_of
from berth_host.cli.rendering.terminal import PLAIN, Terminal

from berth_sim.commands.comparison import Change, Comparison, Move


def comparison_text(found: Comparison, terminal: Terminal = PLAIN) -> str:
    """Return a line per configuration, the tables of the pods that differ, and a line of figures."""
    heads = [
        (f"{name}:", f"{count_of(summary.placed, 'pod')} placed, {summary.pending} pending")
        for name, summary in zip(found.names, found.summaries, strict=True)
    ]
    sections = [columns((), heads)]
    if found.cluster:
        sections.insert(0, f"cluster {found.cluster}, as it was read")
    if found.moved:
        rows = [(item.pod, item.before, item.after, _why_moved(item)) for item in found.moved]
        sections.append(_titled("MOVED", ("POD", "FROM", "TO", "WHY"), rows, terminal))
    for title, where, changes in (
        ("BECOME PENDING", "NODE BEFORE", found.pending),
        ("GET PLACED", "NODE AFTER", found.placed),
    ):
        if changes:
            header = ("POD", where, "REJECTED BY", "NODES", "REASON")
            reasons = [row for item in changes for row in _why_pending(item)]
            sections.append(_titled(title, header, reasons, terminal, right=(3,)))
    figures = f"{len(found.moved)} moved, {len(found.pending)} become pending, {len(found.placed)} get placed"
    sections.append(terminal.heading(f"{figures}; {found.same} as before; seed {found.summaries[0].seed}"))
    return "\n\n".join(sections) + "\n"


def _titled(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    terminal: Terminal,
    right: Sequence[int] = (),
) -> str:
    table = columns(header, rows, right=right, indent=2, width=terminal.width, heading=terminal.heading)
    return f"{terminal.heading(title)}\n{table}"


def _why_moved(item: Move) -> str:
    if item.scores is None:
        return f"{item.before} is not among the best nodes any more"
    said = [f"{plugin} {difference:+d}" for plugin, difference in item.scores.items()]
    return ", ".join(said) or "equal scores"


def _why_pending(item: Change) -> Iterator[tuple[str, ...]]:
    """Yield a row per plugin and reason; the pod's message where no plugin rejected nodes."""
    name, node = item.pod, item.node
    for rejected in item.rejections:
        yield name, node, rejected.plugin, str(len(rejected.node_names)), rejected.reason
        name = node = ""
    if not item.rejections:
        yield name, node, "-", "-", item.message
