"""Configuration errors that a flag causes: reported of the flag, as given, and not of a file.

Called by `configuration` and `settings`. Source: `cmd/kube-scheduler/app/options/options.go`, v1.36, and
kube-scheduler's own words on the same flags; of a short leaseDuration it quotes renewDeadline alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from berth_host.cli.scheduler.flags import FLAGS
from berth_host.cli.scheduler.parsing import ParsedFlags
from berth_host.cli.scheduler.shown import shown
from berth_host.config.errors import ConfigurationError, Finding

_FLAGS_OF: Final = {
    "leaderElection.leaseDuration": ("leader-elect-lease-duration", "leader-elect-renew-deadline"),
    "leaderElection.renewDeadline": ("leader-elect-renew-deadline", "leader-elect-retry-period"),
    "leaderElection.retryPeriod": ("leader-elect-retry-period",),
    "leaderElection.resourceLock": ("leader-elect-resource-lock",),
    "leaderElection.resourceName": ("leader-elect-resource-name",),
    "leaderElection.resourceNamespace": ("leader-elect-resource-namespace",),
    "clientConnection.burst": ("kube-api-burst",),
}
_OWN_WORDS: Final = {
    # The value that is quoted is renewDeadline's.
    "must be greater than `RenewDeadline`": "leaseDuration must be greater than renewDeadline, {value}",
    "Required value": "must not be empty",
}


def of_flags(error: ConfigurationError, flags: ParsedFlags) -> ConfigurationError:
    """The same error where no flag is to blame; else an error that names the flags, with their findings
    alone."""
    blamed: list[str] = []
    findings: list[Finding] = []
    for finding in error.findings:
        names = given(flags, (finding.field,))
        if finding.type is None or not names:
            continue
        before, _, detail = finding.message.rpartition(": ")
        words = _OWN_WORDS.get(detail, detail).replace("{value}", before.rpartition(": ")[2].strip('"'))
        blamed += names
        findings.append(Finding(words, type=finding.type))
    if not findings:
        return error
    found = ConfigurationError(error.kind, findings, source=" ".join(dict.fromkeys(blamed)))
    found.warnings = error.warnings
    return found


def given(flags: ParsedFlags, fields: Iterable[str]) -> list[str]:
    """The flags of the command line that may have set any of `fields`, as `--NAME=VALUE`."""
    return list(dict.fromkeys(_given(flags, fields)))


def _given(flags: ParsedFlags, fields: Iterable[str]) -> Iterator[str]:
    for field in fields:
        for name in _FLAGS_OF.get(field, ()):
            if flags.is_given(name):
                yield f"--{name}={shown(FLAGS[name], flags.value(name))}"
