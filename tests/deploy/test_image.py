"""`make image`: images that run without root, with a read-only root, and list what they have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from deploy import image

WHY_NOT = image.why_not()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "buildah is there")
def test_images_are_built_and_run_as_their_user_with_a_read_only_root(tmp_path: Path) -> None:
    assert image.make(tmp_path) == []


def test_machine_without_buildah_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert image.main([]) == 1
    said = capsys.readouterr().err
    assert said == (
        "image: no buildah, mmdebstrap, unshare, setpriv:"
        " apt-get install -y --no-install-recommends buildah mmdebstrap\n"
    )


class Recorded(image.Container):
    """A container whose commands have known output."""

    def __init__(self, root: Path, outputs: Mapping[str, str], user: str = "65532:65532") -> None:
        super().__init__(root, {"User": user, "Entrypoint": ["berth"], "Cmd": ["--help"]})
        self.outputs = outputs

    def __call__(self, *command: str, inputs: Mapping[str, str] | None = None) -> str:
        return next((said for key, said in self.outputs.items() if key in " ".join(command)), "")


GOOD = {
    "--version": "berth 0.1.0",
    "--help": "Usage: berth",
    "importlib.metadata": json.dumps([["Berth_Host", "0.1.0"], ["numpy", "2.0"]]),
    "/tmp/new": "EROFS",
    "check-config": "schedulerName: default-scheduler",
    "simulate": '{"node": "a"}',
}


def faults(
    folder: Path, listed: Mapping[str, str], *, user: str = "65532:65532", **outputs: str
) -> list[str]:
    (folder / "berth").mkdir()
    components = [{"name": name, "version": version} for name, version in listed.items()]
    (folder / "berth/sbom.cdx.json").write_text(json.dumps({"components": components}))
    return list(image.faults_of(Recorded(folder, {**GOOD, **outputs}, user)))


@pytest.mark.parametrize(
    ("listed", "outputs", "fault"),
    [
        ({"berth-host": "0.1.0", "numpy": "2.0"}, {}, ""),
        ({"berth-host": "0.1.0"}, {}, "sbom.cdx.json lacks numpy 2.0, which is installed"),
        (
            {"berth-host": "0.1.0", "numpy": "2.0", "pip": "23"},
            {},
            "sbom.cdx.json names pip 23, which is not installed",
        ),
        ({"berth-host": "0.1.0", "numpy": "2.0"}, {"user": "0:0"}, "the image runs as root (User '0:0')"),
        ({"berth-host": "0.1.0", "numpy": "2.0"}, {"/tmp/new": ""}, "can be written to"),
        ({"berth-host": "0.1.0", "numpy": "2.0"}, {"simulate": "{}"}, "simulate did not place the pod"),
        ({"berth-host": "0.1.0", "numpy": "2.0"}, {"check-config": "?"}, "check-config printed '?'"),
        ({"berth-host": "0.1.0", "numpy": "2.0"}, {"--version": "3.11"}, "--version printed '3.11'"),
    ],
    ids=["good", "lacks", "names", "root", "writable", "simulate", "check-config", "version"],
)
def test_fault_of_an_image_is_named(
    tmp_path: Path, listed: Mapping[str, str], outputs: Mapping[str, str], fault: str
) -> None:
    found = faults(tmp_path, listed, **outputs)
    assert len(found) == bool(fault)
    assert fault in "".join(found)
