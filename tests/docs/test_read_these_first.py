"""docs/reference/read-these-first.md names what the contract has, and counts it right."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from berth_sdk.plugin.v1 import common_pb2, handle_pb2, identity_pb2, queue_pb2, scheduling_pb2, state_pb2
from google.protobuf.descriptor import Descriptor
from support.places import ROOT

PAGE = ROOT / "docs" / "reference" / "read-these-first.md"
FILES = [
    module.DESCRIPTOR
    for module in (common_pb2, handle_pb2, identity_pb2, queue_pb2, scheduling_pb2, state_pb2)
]
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SECTIONS = [part for part in PAGE.read_text().split("\n## ")[1:] if "Call" in part]


def messages() -> Iterator[Descriptor]:
    """Yield every message of the contract."""
    for file in FILES:
        yield from file.message_types_by_name.values()


def calls() -> dict[str, tuple[Descriptor, Descriptor]]:
    """Return the request and the response of each call, by name."""
    return {
        call.name: (call.input_type, call.output_type)
        for file in FILES
        for service in file.services_by_name.values()
        for call in service.methods
    }


def values() -> set[str]:
    """Return the names of all values of enums, without the prefix of their enum."""
    enums = [enum for file in FILES for enum in file.enum_types_by_name.values()]
    enums += [enum for message in messages() for enum in message.enum_types]
    full = {value.name for enum in enums for value in enum.values}
    return full | {name.partition("_")[2] for name in full}


def rows(section: str) -> list[tuple[str, str]]:
    """Return the message and the law of each row of a section's table."""
    return re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition("\n")[0])
def test_every_message_call_and_count_of_a_section_is_in_the_contract(section: str) -> None:
    known = {message.name for message in messages()}
    table = rows(section)
    assert table
    assert [name for name, _ in table if name not in known] == []
    intro = re.sub(r"\s+", " ", section.partition("\n| Message")[0].split("Call", 1)[1])
    said = re.search(rf"({'|'.join(NUMBERS)})( messages)?( more)?:$", intro.strip(), re.IGNORECASE)
    assert said, intro
    assert NUMBERS.index(said[1].lower()) == len(table)
    named = re.findall(r"`(\w+)`", intro.split(".")[0])
    assert [name for name in named if name not in calls()] == []


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition("\n")[0])
def test_every_field_of_a_law_is_in_the_contract(section: str) -> None:
    fields = {field.name for message in messages() for field in message.fields}
    for message, law in rows(section):
        for word in re.findall(r"`(\w+)`", law):
            assert word in fields | values(), f"{message}: {word}"
        for word in re.findall(r"\b[A-Z]{2,}(?:_[A-Z]+)*\b", law):
            assert word in values() | {"PERMISSION_DENIED", "REQUIRED", "NAMES"}, f"{message}: {word}"


def test_every_call_that_a_plugin_serves_is_in_a_section() -> None:
    named = {
        word for section in SECTIONS for word in re.findall(r"`(\w+)`", section.partition("\n| Message")[0])
    }
    left_out = {
        "SimulateFilter",  # asked about like Filter
        "NormalizeScore",
        "NormalizePlacementScore",
        "EndCycles",  # CycleEnd says it
    }
    served = {
        call.name
        for file in FILES
        for service in file.services_by_name.values()
        if service.name != "HandleService"
        for call in service.methods
    }
    assert served - named == left_out
