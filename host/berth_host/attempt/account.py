"""`Account`: what explains an attempt afterwards: the time of its calls, and what it went on without.

`explain.diagnosis.Diagnosis` keeps it when the attempt is over.
"""

from __future__ import annotations


class Account:
    """The account of one cycle of a pod, of a group, or of a placement."""

    _passed_over: tuple[str, ...] = ()
    _remarks: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.timings_s: dict[tuple[str, str], float] = {}
        """Seconds spent per (plugin, call)."""
        self.left_out: dict[tuple[str, str], list[str]] = {}
        """The calls without an answer that the cycle went on without, by (plugin, why)."""
        self.overruns: list[str] = []
        """One sentence for each in-process call that took longer than its deadline."""

    def leave_out(self, plugin: str, call: str, why: str) -> None:
        """Note that the cycle goes on without the plugin's answer.

        `why`: what the plugin did, and the setting that lets the pod pass, such as
        `is not attached (required: false)`.
        """
        calls = self.left_out.setdefault((plugin, why), [])
        if call not in calls:
            calls.append(call)

    def pass_over(self, note: str) -> None:
        """Note that the cycle goes on without an HTTP extender, in a sentence."""
        self._passed_over = (*self._passed_over, note)

    def remark(self, plugin: str, text: str) -> None:
        """Note what a plugin says about the pod although it neither fails nor rejects."""
        self._remarks = (*self._remarks, f"{plugin}: {text}")

    @property
    def notes(self) -> list[str]:
        """One sentence for each omission, each overrun, each HTTP extender that was passed over, and each
        remark of a plugin.
        """
        return [*self.omissions, *self.overruns, *self._passed_over, *self._remarks]

    @property
    def omissions(self) -> list[str]:
        """One sentence for each plugin without whose answer the cycle went on, and each reason for it."""
        if not self.left_out:
            return []
        return [
            f'without plugin "{plugin}" at {", ".join(calls)}: it {why}'
            for (plugin, why), calls in self.left_out.items()
        ]
