"""`FollowedFiles`: a value is made again when its files change, and stays while they are bad."""

from __future__ import annotations

from pathlib import Path

import pytest
from berth_sdk.wire.followed_files import FollowedFiles, TlsError, stamp_of


class Pair:
    """Two files that must be equal; `loads` counts how often they were read."""

    def __init__(self, folder: Path) -> None:
        self.paths = [str(folder / "a"), str(folder / "b")]
        self.told: list[str] = []
        self.loads = 0
        self.write("1", "1")

    def write(self, *texts: str) -> None:
        for path, text in zip(self.paths, texts, strict=True):
            fresh = Path(f"{path}.new")
            fresh.write_text(text)
            fresh.rename(path)

    def load(self) -> str:
        self.loads += 1
        one, other = (Path(path).read_text() for path in self.paths)
        if one != other:
            raise TlsError(f"{one} is not {other}")
        return one

    def followed(self) -> FollowedFiles[str]:
        return FollowedFiles(self.paths, self.load, self.told.append)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_files_are_loaded_once_until_they_change(pair: Pair) -> None:
    followed = pair.followed()
    assert [followed.follow() for _ in range(3)] == ["1"] * 3
    assert pair.loads == 1
    pair.write("2", "2")
    assert [followed.follow() for _ in range(3)] == ["2"] * 3
    assert (pair.loads, pair.told) == (2, [""])


def test_bad_files_are_told_once_and_the_last_good_ones_stay(pair: Pair) -> None:
    followed = pair.followed()
    pair.write("2", "3")
    assert [followed.follow() for _ in range(3)] == ["1"] * 3
    Path(pair.paths[1]).unlink()
    assert [followed.follow() for _ in range(3)] == ["1"] * 3
    assert pair.told == ["2 is not 3", f"{pair.paths[1]}: No such file or directory"]
    pair.write("3", "3")
    assert followed.follow() == "3"
    assert pair.told[2:] == [""]


def test_files_that_change_while_they_are_read_are_read_again(pair: Pair) -> None:
    load = pair.load

    def slow() -> str:
        found = load()
        if pair.loads == 1:
            pair.write("22", "22")
        return found

    pair.load = slow  # type: ignore[method-assign]
    assert pair.followed().value == "22"


def test_files_that_never_stay_are_refused(pair: Pair) -> None:
    load = pair.load

    def slow() -> str:
        found = load()
        pair.write(*[str(pair.loads)] * 2)
        return found

    pair.load = slow  # type: ignore[method-assign]
    with pytest.raises(TlsError, match="are being replaced"):
        pair.followed()


def test_stamp_names_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TlsError, match="absent: No such file"):
        stamp_of([tmp_path / "absent"])
