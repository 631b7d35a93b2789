"""The pages `/healthz`, `/livez` and `/readyz`: named checks, answered in kube-scheduler's words.

Source: `k8s.io/apiserver/pkg/server/healthz/healthz.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from berth_host.endpoints.request_response import Answer, Request, not_found, text
from berth_host.log import get_logger
from berth_host.metrics.slis import HealthMetrics
from berth_host.model.sparing_lines import SparingLines

log = get_logger()
KINDS: Final = ("healthz", "livez", "readyz")


@dataclass(frozen=True, slots=True)
class Check:
    """A health check.

    `problem`: returns why the check fails, "" if it passes; only users with the right to the check's own path
    see the reason. `applies`: called at each request; a check that does not apply is left out. `remark`:
    returns a remark about a check that passes, "" for none; the same users see it.
    """

    name: str
    problem: Callable[[], str]
    applies: Callable[[], bool] = lambda: True
    remark: Callable[[], str] = lambda: ""


PING: Final = Check("ping", lambda: "")


class Health:
    """The checks of each page, in the order in which they are shown."""

    def __init__(self, metrics: HealthMetrics) -> None:
        self._metrics = metrics
        self.lines = SparingLines()
        """The limit of the lines about failed checks, for which anybody can ask."""
        self._checks: dict[str, list[Check]] = {kind: [] for kind in KINDS}

    def add(self, kind: str, checks: Iterable[Check]) -> None:
        """Add checks to one of KINDS."""
        self._checks[kind] += checks

    def answer(self, kind: str, name: str, request: Request) -> Answer:
        """Run all checks of a kind, or the one called `name`, and return the answer."""
        checks = [check for check in self._checks[kind] if check.applies()] or [PING]
        if not name:
            return self._all(kind, checks, request)
        found = next((check for check in checks if check.name == name), None)
        if found is None:
            return not_found()
        problem = found.problem()
        if problem:
            return text(f"internal server error: {problem}\n", 500)
        remark = found.remark()
        return text(f"ok\nwarn: {remark}\n" if remark else "ok", sniff=True)

    def _all(self, kind: str, checks: Iterable[Check], request: Request) -> Answer:
        excluded = dict.fromkeys(request.query.get("exclude", ()))
        lines, failed, remarked = [], [], []
        for check in checks:
            if check.name in excluded:
                del excluded[check.name]
                lines.append(f"[+]{check.name} excluded: ok")
                continue
            problem = check.problem()
            self._metrics.checked(check.name, kind, passed=not problem)
            if problem:
                failed.append(f"{check.name}: {problem}")
                lines.append(f"[-]{check.name} failed: reason withheld")
            else:
                lines.append(f"[+]{check.name} ok")
                if check.remark():
                    remarked.append(check.name)
        if excluded:
            names = ", ".join(f'"{name}"' for name in excluded)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
        lines += [f"warn: {name} passed with a remark: /{kind}/{name} has it" for name in remarked]
        if failed:
            left_out = self.lines.take()
            if left_out is not None:
                log.warning("endpoints.check_failed", path=f"/{kind}", problems=failed, left_out=left_out)
            lines.append(f"{kind} check failed")
            return text("\n".join(lines) + "\n", 500)
        if "verbose" not in request.query:
            return text("ok")
        lines.append(f"{kind} check passed")
        return text("\n".join(lines) + "\n")
