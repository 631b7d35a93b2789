"""The kinds of flag values, each with the function that reads its text.

The table in `flags` and `parsing` use them. Durations become seconds. Source: `github.com/spf13/pflag`,
`k8s.io/component-base/cli/flag`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from berth_sdk.duration import SECOND_NS, parse_duration

from berth_host.config.emulation import DEFAULT_VERSION, EMULATIONS

_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_DIGITS: Final = re.compile(r"[0-9]+")
_INTEGER: Final = re.compile(
    r"(?P<sign>[-+]?)(0|[1-9](_?[0-9])*|0(_?(?P<octal>[0-7](_?[0-7])*))|"
    r"0[xX](_?[0-9a-fA-F])+|0[oO](_?[0-7])+|0[bB](_?[01])+)"
)
MAX_INT32: Final = 2**31 - 1
_VERSION_NUMBER: Final = re.compile(r"[0-9]+\.[0-9]+")
_KUBE: Final = "kube"
_COMPONENT: Final = "kube:"
"""The component prefix that a gate may have; kube-scheduler has no other component."""
_MIXED: Final = (
    "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use"
)

UVLOOP: Final = "uvloop"
ASYNCIO: Final = "asyncio"

Value = bool | int | float | str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FlagKind:
    """A kind of flag value. `read`: reads a text; raises ValueError with the expected form.

    `adds`: a repeated flag adds to the earlier values. `without_value`: the value of the bare flag; None: the
    flag needs a value. `check`: checks all given values together; raises ValueError.
    """

    metavar: str
    read: Callable[[str], Value]
    adds: bool = False
    without_value: Value | None = None
    check: Callable[[tuple[str, ...]], None] | None = None


def _bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("want true or false")


def _version(text: str) -> bool:
    return True if text == "raw" else _bool(text)


def _int(text: str) -> int:
    """Return the integer, read as by Go's strconv.ParseInt with base 0: also 0x10, 0b11, 0o17, 017, 1_000."""
    spelled = _INTEGER.fullmatch(text)
    if spelled is None:
        raise ValueError("want a whole number")
    return _in_range(int(f"{spelled['sign']}0o{spelled['octal']}" if spelled["octal"] else text, 0))


def _in_range(number: int) -> int:
    if not -MAX_INT32 - 1 <= number <= MAX_INT32:
        raise ValueError(f"want a whole number up to {MAX_INT32}")
    return number


def _level(text: str) -> int:
    # pflag reads levels as decimal digits only, unlike other numbers.
    if not _DIGITS.fullmatch(text):
        raise ValueError("want a whole number from 0")
    return _in_range(int(text))


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("want a number") from None


def _address(text: str) -> str:
    try:
        address = str(ip_address(text.strip()))
    except ValueError:
        address = ""
    if not address or "%" in address:
        raise ValueError("want an IP address; 0.0.0.0 or :: for all that this machine has")
    return text.strip()


def _event_loop(text: str) -> str:
    if text not in (UVLOOP, ASYNCIO):
        raise ValueError(f"want {UVLOOP} or {ASYNCIO}")
    return text


def _seconds(text: str) -> float:
    return parse_duration(text) / SECOND_NS


def _texts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _gates(text: str) -> tuple[str, ...]:
    gates = _texts(text)
    _gates_of_one_kind(gates)
    for gate in (gate.removeprefix(_COMPONENT) for gate in gates if gate != _COMPONENT):
        component, colon, _ = gate.partition(":")
        if colon:
            raise ValueError(f"component not registered: {component}")
        name, equals, value = (part.strip() for part in gate.partition("="))
        if not equals:
            raise ValueError(f"missing bool value for {name}: want {name}=true or {name}=false")
        if value not in _TRUE | _FALSE:
            raise ValueError(f"invalid value of {name}={value}: want true or false")
    return gates


def _emulated(text: str) -> tuple[str, ...]:
    versions = _texts(text)
    for component, version in map(_component_version, versions):
        if component != _KUBE:
            raise ValueError(f"component not registered: {component}: want kube=MAJOR.MINOR")
        if not _VERSION_NUMBER.fullmatch(version):
            raise ValueError(f"invalid version {version}: want kube=MAJOR.MINOR, without a patch number")
        if version not in EMULATIONS:
            raise ValueError(f"cannot emulate kube-scheduler {version}: want {_alternatives()}")
    return versions


def _alternatives() -> str:
    *first, last = (f"{_KUBE}={version}" for version in EMULATIONS)
    return f"{', '.join(first)} or {last}"


def _component_version(text: str) -> tuple[str, str]:
    component, equals, version = (part.strip() for part in text.partition("="))
    return (component, version) if equals else (_KUBE, component)


def _one_version(versions: tuple[str, ...]) -> None:
    if len(versions) > 1:
        first, second = (f"{_KUBE}={_component_version(text)[1]}" for text in versions[:2])
        raise ValueError(f"duplicate version flag, {first} and {second}")


def _gates_of_one_kind(gates: tuple[str, ...]) -> None:
    if 0 < sum(gate.startswith(_COMPONENT) for gate in gates) < len(gates):
        raise ValueError(_MIXED)


BOOL: Final = FlagKind("[=true|false]", _bool, without_value=True)
VERSION: Final = FlagKind("", _version, without_value=True)
INT: Final = FlagKind("INTEGER", _int)
LEVEL: Final = FlagKind("INTEGER", _level)
FLOAT: Final = FlagKind("NUMBER", _float)
DURATION: Final = FlagKind("DURATION", _seconds)
STRING: Final = FlagKind("TEXT", str)
ADDRESS: Final = FlagKind("ADDRESS", _address)
FILE: Final = FlagKind("FILE", str)
FOLDER: Final = FlagKind("DIR", str)
EVENT_LOOP: Final = FlagKind(f"{UVLOOP}|{ASYNCIO}", _event_loop)
STRINGS: Final = FlagKind("TEXT,...", _texts, adds=True)
GATES: Final = FlagKind("GATE=true|false,...", _gates, adds=True, check=_gates_of_one_kind)

EMULATED: Final = FlagKind("kube=MAJOR.MINOR", _emulated, adds=True, check=_one_version)
EMULATED_HELP: Final = (
    f"Decide as this version of kube-scheduler, {_alternatives()};"
    f" without the flag as {DEFAULT_VERSION}, with its faults corrected."
)


def emulated_version(versions: tuple[str, ...]) -> str:
    """Return the version of `kube=1.36` or `1.36`, as read by EMULATED; empty without one."""
    return _component_version(versions[0])[1] if versions else ""


def gate_values(gates: tuple[str, ...]) -> dict[str, bool]:
    """Return the values of `Name=true` texts, as read by GATES, by name. The last value of a name counts."""
    split = (gate.removeprefix(_COMPONENT).partition("=") for gate in gates if gate != _COMPONENT)
    return {name.strip(): value.strip() in _TRUE for name, _, value in split}
