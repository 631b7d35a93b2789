"""Files of a result are written all of them or none, and others are not replaced without force."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from berth_host.cli.written_files import FilesExistError, TextFile, write_files

BOTH = (TextFile("a", "1"), TextFile("b", "2", is_secret=True))


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_files_are_written_once_with_their_modes(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        assert write_files(tmp_path / "x" / "y", BOTH, force=False) == [
            (tmp_path / "x/y/a", True),
            (tmp_path / "x/y/b", True),
        ]
    finally:
        os.umask(mask)
    assert contents(tmp_path / "x/y") == {"a": "1", "b": "2"}
    assert [(tmp_path / "x/y" / name).stat().st_mode & 0o777 for name in "ab"] == [0o640, 0o600]
    assert [is_new for _, is_new in write_files(tmp_path / "x/y", BOTH, force=True)] == [False, False]


def test_one_other_file_keeps_all_from_being_written(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("mine")
    with pytest.raises(FilesExistError) as raised:
        write_files(tmp_path, BOTH, force=False)
    assert raised.value.paths == (tmp_path / "b",)
    assert contents(tmp_path) == {"b": "mine"}
    write_files(tmp_path, BOTH, force=True)
    assert contents(tmp_path) == {"a": "1", "b": "2"}


def test_link_is_replaced_by_force_and_its_target_stays(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    (tmp_path / "a").symlink_to("target")
    (tmp_path / "b").symlink_to("nowhere")
    with pytest.raises(FilesExistError):
        write_files(tmp_path, BOTH, force=False)
    write_files(tmp_path, BOTH, force=True)
    assert contents(tmp_path) == {"a": "1", "b": "2", "target": "mine"}


def test_folder_in_the_place_of_the_second_file_leaves_the_first_unwritten(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    with pytest.raises(IsADirectoryError):
        write_files(tmp_path, BOTH, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_name_that_the_folder_cannot_have_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File name too long"):
        write_files(tmp_path / "new", (TextFile("a", "1"), TextFile("b" * 300, "2")), force=False)
    assert list(tmp_path.iterdir()) == []
