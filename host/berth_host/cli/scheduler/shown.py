"""A flag's value as Go writes it: in help texts, at flagz and in errors."""

from __future__ import annotations

from berth_host.cli.scheduler.flag_kinds import DURATION, Value
from berth_host.cli.scheduler.flags import Flag
from berth_host.config.decoding.duration import format_seconds


def shown(flag: Flag, value: Value) -> str:
    """A flag's value as Go writes it."""
    match value:
        case bool(is_on):
            return str(is_on).lower()
        case float(number) if flag.kind is DURATION:
            return format_seconds(number)
        case float(number):
            return f"{number:g}"
        case tuple(texts):
            return f"[{','.join(texts)}]"
        case _:
            return str(value)
