"""`ExtenderClient`: one HTTP extender: its name, the pods that concern it, and its calls, counted and timed.

Called by `extenders`, which knows the verbs. `exchange` sends the requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from berth_sdk.pod import Pod

from berth_host.attempt.cycle import Cycle
from berth_host.config.decoding.types_v1 import Extender
from berth_host.errors.extenders import ExtenderError
from berth_host.log import get_logger
from berth_host.metrics.plugin_stats import PluginStats
from berth_host.metrics.series import instant_s
from berth_host.model.wanted_resources import containers_want

if TYPE_CHECKING:
    from berth_host.extenders.exchange import Exchange

log = get_logger()


class ExtenderName(str):
    """The name of an extender in figures and explanations, which tells it from the name of a plugin."""

    __slots__ = ()


def names_of(extenders: Sequence[Extender]) -> list[ExtenderName]:
    """Return a name for each extender: `extender ` and its URL without scheme, user and query, and a number
    where two are the same.
    """
    names: list[ExtenderName] = []
    for extender in extenders:
        # A query may hold a token; a metric and a log must not.
        address = extender.url_prefix.partition("://")[2] or extender.url_prefix
        place = address.partition("?")[0].rpartition("@")[2].rstrip("/") or "without URL"
        name = ExtenderName(f"extender {place}")
        count = 1
        while name in names:
            count += 1
            name = ExtenderName(f"extender {place} #{count}")
        names.append(name)
    return names


class ExtenderClient:
    """One extender. `settings`: its entry in the configuration. `stats`: its calls, by verb."""

    def __init__(self, name: ExtenderName, settings: Extender) -> None:
        self.name = name
        self.settings = settings
        self.stats = PluginStats(name)
        self._managed = frozenset(resource.name for resource in settings.managed_resources)
        self._exchange: Exchange | None = None
        self.failing: set[str] = set()
        """The verbs whose last call failed."""

    def is_interested(self, pod: Pod) -> bool:
        """Return True if the extender is to be asked about the pod.

        An extender with managed resources is asked about pods of which a container or init container requests
        or limits one of them.
        """
        return not self._managed or containers_want(pod, self._managed)

    async def post(self, verb: str, body: bytes, cycle: Cycle) -> bytes:
        """Send one request and return the body of its answer. Raises ExtenderError.

        `verb`: as configured. The call is counted and timed, but not yet as a success: `answered` does that.
        """
        figures = self.stats.of(verb)
        started_s = instant_s()
        received = 0
        try:
            exchange = self._exchange or self._opened()
            if cycle.trace is None:
                answer = await exchange.post(verb, body)
            else:
                with cycle.trace.request(self.name, verb, exchange.shown_url(verb)) as traceparent:
                    answer = await exchange.post(verb, body, traceparent)
            received = len(answer)
            return answer
        finally:
            duration_s = instant_s() - started_s
            figures.times.observe(duration_s)
            figures.sent(len(body), received)
            key = (self.name, verb)
            cycle.account.timings_s[key] = cycle.account.timings_s.get(key, 0.0) + duration_s

    def answered(self, verb: str) -> None:
        """Note that a call had a usable answer."""
        if self.failing and verb in self.failing:
            self.failing.discard(verb)
            log.info("extender.recovered", extender=self.name, verb=verb)

    def failed(self, verb: str, err: ExtenderError, cycle: Cycle, *, passed_over: str) -> None:
        """Count a call without a usable answer. `passed_over`: why the attempt goes on without it; "" if
        it ends.
        """
        figures = self.stats.of(verb)
        figures.failures[err.outcome] += 1
        if passed_over:
            figures.policies["Ignore"] += 1
            cycle.account.pass_over(f"without {self.name} at {verb} ({passed_over}): {err}")
        if verb not in self.failing:
            # The first of several failures: a line per pod would hide everything else.
            self.failing.add(verb)
            log.warning(
                "extender.failed",
                extender=self.name,
                verb=verb,
                problem=str(err),
                passed_over=bool(passed_over),
            )

    async def close(self) -> None:
        """Close the connections."""
        if self._exchange is not None:
            await self._exchange.close()

    def _opened(self) -> Exchange:
        from berth_host.extenders.exchange import Exchange

        self._exchange = Exchange(self.settings)
        return self._exchange
