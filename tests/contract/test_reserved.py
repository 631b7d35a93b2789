"""Names of calls stay free until a minor takes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from protocheck import reserved

from contract.sample import compile_sample, rules


def test_contract_uses_no_reserved_name(contract: FileDescriptorSet) -> None:
    assert reserved.check(contract) == []


def test_reserved_name_is_that_of_signatures() -> None:
    assert {"SignPod"} == reserved.KEPT_FREE


@pytest.mark.parametrize("name", sorted(reserved.KEPT_FREE))
def test_rpc_with_a_reserved_name_is_found_with_its_messages(name: str, tmp_path: Path) -> None:
    edits = [("rpc Lower(", f"rpc {name}("), ("LowerRequest", f"{name}Request")]
    contract = compile_sample(tmp_path, *edits, ("LowerResponse", f"{name}Response"))

    findings = reserved.check(contract)

    assert rules(findings) == {"NAME_KEPT_FREE"}
    assert len(findings) == 3


def test_message_with_a_reserved_name_is_found(tmp_path: Path) -> None:
    contract = compile_sample(tmp_path, ("// One load.", "// One.\nmessage SignPod {}\n\n// One load."))

    assert len(reserved.check(contract)) == 1


def test_name_removed_from_the_list_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserved, "KEPT_FREE", reserved.KEPT_FREE - {"SignPod"})

    contract = compile_sample(tmp_path, ("// One load.", "// One.\nmessage SignPod {}\n\n// One load."))

    assert reserved.check(contract) == []
