"""The bytes of a file as text: UTF-8, and UTF-16 with a byte order mark."""

from __future__ import annotations

from pathlib import Path

import pytest
from berth_sdk.yaml.encoding import read_text, text_of


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_text_is_read_with_one_kind_of_line_end(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "pod.yaml"
    path.write_bytes("name: caf\u00e9\r\nkind: Pod\n".encode(encoding))
    assert read_text(path) == "name: caf\u00e9\nkind: Pod\n"


def test_bytes_of_another_encoding_are_refused() -> None:
    with pytest.raises(UnicodeDecodeError):
        text_of("caf\u00e9".encode("latin-1"))
