"""Run the demo and write docs/images/demo.svg, a recording of what it prints.

    python tests/docs/record_demo.py

Lines appear in the order and, apart from pauses above a second and below 150 ms, at the pace of the run. The
picture needs no script: its animation is CSS, and stands still for readers who ask for less motion.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from support.places import ROOT

TARGET: Final = ROOT / "docs/images/demo.svg"
ROWS: Final = 34
"""Lines that are seen at once."""
_COLUMNS: Final = 120
_LINE_PX: Final = 17
_CHARACTER_PX: Final = 7.25
_MARGIN_PX: Final = 14
_LONGEST_S: Final = 1.0
_SHORTEST_S: Final = 0.15
_REST_S: Final = 6.0
"""How long the end is seen before the recording begins again."""


def recorded() -> list[tuple[float, str]]:
    """Run the demo; return each line with the seconds at which it appears in the recording."""
    binaries = Path(sys.executable).parent
    path = f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = os.environ | {"PATH": path, "COLUMNS": str(_COLUMNS), "PYTHONUNBUFFERED": "1"}
    lines = [(0.0, "$ make demo")]
    with subprocess.Popen(
        [sys.executable, "examples/demo/demo.py"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        at_s, before_s = 0.5, time.monotonic()
        for line in process.stdout:
            now_s = time.monotonic()
            at_s += min(max(now_s - before_s, _SHORTEST_S), _LONGEST_S)
            before_s = now_s
            lines.append((at_s, line.rstrip("\n")[:_COLUMNS]))
    if process.returncode:
        raise SystemExit(f"the demo failed with exit code {process.returncode}: run `make demo`")
    return lines


def drawn(lines: Sequence[tuple[float, str]]) -> str:
    """Return the picture."""
    total_s = lines[-1][0] + _REST_S
    width = round(_COLUMNS * _CHARACTER_PX + 2 * _MARGIN_PX)
    height = ROWS * _LINE_PX + 2 * _MARGIN_PX + 22
    shown, styles, moves = [], [], ["0%{transform:translateY(0)}"]
    for number, (at_s, line) in enumerate(lines):
        share = 100 * at_s / total_s
        y = (number + 1) * _LINE_PX
        if line.strip():
            shown.append(f'<text y="{y}" class="l{number}">{escape(line)}</text>')
            styles.append(
                f"@keyframes l{number}{{0%,{share:.2f}%{{opacity:0}}{share + 0.01:.2f}%,100%{{opacity:1}}}}"
                f".l{number}{{animation:l{number} {total_s:.1f}s infinite}}"
            )
        if number >= ROWS:
            offset = (number + 1 - ROWS) * _LINE_PX
            moves.append(f"{share:.2f}%{{transform:translateY(-{offset}px)}}")
    end = (max(len(lines) - ROWS, 0)) * _LINE_PX
    moves.append(f"100%{{transform:translateY(-{end}px)}}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n'
        "<title>A recording of make demo</title>\n<style>\n"
        "text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d6deeb;white-space:pre}\n"
        f"@keyframes scroll{{{''.join(moves)}}}\n.all{{animation:scroll {total_s:.1f}s step-end infinite}}\n"
        + "\n".join(styles)
        + "\n@media (prefers-reduced-motion:reduce){text,.all{animation:none !important}}\n</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#0b1020"/>\n'
        + "".join(
            f'<circle cx="{_MARGIN_PX + 6 + 18 * at}" cy="15" r="5" fill="{color}"/>'
            for at, color in enumerate(("#ff5f57", "#febc2e", "#28c840"))
        )
        + f'\n<svg x="{_MARGIN_PX}" y="26" width="{width - 2 * _MARGIN_PX}" height="{ROWS * _LINE_PX + 6}">'
        f'<g class="all" xml:space="preserve">\n{chr(10).join(shown)}\n</g></svg>\n</svg>\n'
    )


if __name__ == "__main__":
    TARGET.write_text(drawn(recorded()), encoding="utf-8")
    print(TARGET.relative_to(ROOT))
