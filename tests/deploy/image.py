"""Build the images of Dockerfile and examples/Dockerfile with buildah, without a registry, and try them.

    python tests/deploy/image.py [--store FOLDER]

Needs Linux, root, buildah and mmdebstrap, and Debian's and the package index. Exits with 1 and one line for
each fault found.

No registry is asked. Each image that a Dockerfile begins with has a stand-in of the same name, made of
Debian's packages: the one for distroless has Python, and a shell too. The images run as their user, with a
read-only root, without capabilities and without a network.
"""

from __future__ import annotations

import argparse
import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from support.acted_pod import why_not_isolated
from support.places import ROOT

DEBIAN: Final = ("13", "trixie")
"""The release that the Dockerfile begins with: its number, and the name of its packages."""
BERTH: Final = "localhost/berth:tried"
EXAMPLES: Final = "localhost/berth-examples:tried"
PYTHON: Final = "RUN apt-get update && apt-get install -y --no-install-recommends python3\n"
_TOOLS: Final = ("buildah", "mmdebstrap", "unshare", "setpriv")
_STEP: Final = re.compile(r"^FROM (\S+)", re.MULTILINE)
_POD: Final = """\
apiVersion: v1
kind: Node
metadata: {name: a}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c, image: app, resources: {requests: {cpu: "1"}}}]}
"""
_EXAMPLE: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint: {enabled: [{name: BlinkingLightScorer}]}
---
apiVersion: config.berth.io/v1alpha1
kind: BerthConfiguration
plugins:
- name: BlinkingLightScorer
  command: [berth-sdk, serve, "examples.blinking_lights.blinking_lights:BlinkingLightScorer"]
"""
_KUBE_CONFIGURATION: Final = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
_PIP: Final = ("index_url", "extra_index_url", "trusted_host", "proxy", "cert")
"""The settings of pip that belong to the machine, and not to the build."""
_BUNDLE: Final = "/etc/pip-certificates.crt"  # not the file that the package ca-certificates replaces


class ImageError(Exception):
    """A step that failed; the message has what its command printed."""


def why_not() -> str:
    """Return why images cannot be built and tried here; empty where they can."""
    missing = [name for name in _TOOLS if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)}: apt-get install -y --no-install-recommends buildah mmdebstrap"
    return why_not_isolated()


def run(*command: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
    """Run a command and return its output. Raises ImageError with it when the command fails."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=None if env is None else {**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ImageError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


class Images:
    """The images in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._trust: list[str] = []
        self._buildah = [
            *("buildah", "--storage-driver", "vfs"),
            *("--root", str(folder / "images"), "--runroot", str(folder / "run")),
        ]

    def buildah(self, *arguments: str | Path) -> str:
        """Run buildah on these images, and return its output. Raises ImageError."""
        return run(*self._buildah, *arguments).strip()

    def trust_as_here(self) -> None:
        """Let pip use the index and the certificates of this machine while an image is built."""
        settings = configparser.ConfigParser(interpolation=None)
        settings.read("/etc/pip.conf")
        given = {name: value for name in _PIP if (value := os.environ.get(f"PIP_{name.upper()}"))}
        bundle = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE")
        if bundle:
            given["cert"] = _BUNDLE
            self._trust += ["--volume", f"{bundle}:{_BUNDLE}:ro"]
        settings.read_dict({"global": {name.replace("_", "-"): value for name, value in given.items()}})
        path = self._folder / "pip.conf"
        with path.open("w") as file:
            settings.write(file)
        self._trust += ["--volume", f"{path}:/etc/pip.conf:ro"]

    def build(self, dockerfile: Path, name: str, context: Path = ROOT, **arguments: str) -> None:
        """Build an image. `arguments`: the values of its ARGs."""
        given = [f"--build-arg={key}={value}" for key, value in arguments.items()]
        common = ("--isolation", "chroot", "--pull-never", "--layers=false")
        self.buildah("bud", *common, *self._trust, *given, "--file", dockerfile, "--tag", name, context)

    def make_bases(self) -> None:
        """Make a stand-in of each image that the Dockerfile begins with, from Debian's packages."""
        folder = self._folder / "base"
        folder.mkdir()
        release, packages = DEBIAN
        run("mmdebstrap", "--variant=minbase", packages, folder / "debian.tar")
        for name in bases_of(ROOT / "Dockerfile"):
            is_python = "python3" in name
            if not name.startswith((f"debian:{release}", f"gcr.io/distroless/python3-debian{release}:")):
                raise ImageError(f"Dockerfile begins with {name}, which has no stand-in in {__file__}")
            dockerfile = folder / "Dockerfile"
            dockerfile.write_text("FROM scratch\nADD debian.tar /\n" + (PYTHON if is_python else ""))
            has_registry = "." in name.partition("/")[0]
            self.build(dockerfile, name if has_registry else f"docker.io/library/{name}", folder)

    def settings_of(self, name: str) -> Any:
        """Return how a container of an image runs: `User`, `Entrypoint`, `Cmd`, `Env`, `WorkingDir`."""
        return json.loads(self.buildah("inspect", "--type", "image", name))["OCIv1"]["config"]

    @contextmanager
    def container(self, name: str) -> Iterator[Container]:
        """Make a container of an image, for the block."""
        working = self.buildah("from", "--pull-never", name)
        try:
            yield Container(Path(self.buildah("mount", working)), self.settings_of(name))
        finally:
            self.buildah("rm", working)


class Container:
    """A container whose root is read-only. `root`: where it is mounted; `settings`: those of its image."""

    def __init__(self, root: Path, settings: Mapping[str, Any]) -> None:
        self.root = root
        self.settings = settings

    def __call__(self, *command: str, inputs: Mapping[str, str] | None = None) -> str:
        """Run a command as the image's user, and return its output. Raises ImageError.

        `inputs`: files in /run/berth, the only folder that can be written to, by name.
        """
        user, _, group = str(self.settings.get("User", "")).partition(":")
        text = _RUN.format(
            root=shlex.quote(str(self.root)),
            user=user or "0",
            group=group or user or "0",
            folder=shlex.quote(self.settings.get("WorkingDir") or "/"),
            environment=shlex.join([*self.settings.get("Env", ()), "TMPDIR=/run/berth", "HOME=/run/berth"]),
            command=shlex.join(command),
            files="\n".join(
                f"printf %s {shlex.quote(text)} >{shlex.quote(f'{self.root}/run/berth/{name}')}"
                for name, text in (inputs or {}).items()
            ),
        )
        apart = ("--mount", "--net", "--pid", "--fork", "--propagation", "private")
        return run("unshare", *apart, "sh", "-c", text)


_RUN: Final = """\
set -eu
PATH=$PATH:/usr/sbin:/sbin
mount --bind {root} {root}
mkdir -p {root}/run/berth {root}/proc {root}/dev
mount -t tmpfs -o mode=1777,size=64m none {root}/run/berth
mount -t proc none {root}/proc
mount --rbind /dev {root}/dev
{files}
mount -o remount,bind,ro {root}
exec chroot {root} /usr/bin/env -i {environment} setpriv --reuid {user} --regid {group} --clear-groups \\
	--no-new-privs --inh-caps=-all --bounding-set=-all env -C {folder} {command}
"""


def bases_of(dockerfile: Path) -> list[str]:
    """Return the images that the stages of a Dockerfile begin with, each once."""
    return list(dict.fromkeys(_STEP.findall(dockerfile.read_text())))


def faults_of(berth: Container) -> Iterator[str]:
    """Yield what is wrong with the image of the host."""
    entrypoint = berth.settings["Entrypoint"]
    user = str(berth.settings.get("User", ""))
    if user.partition(":")[0] in ("", "0", "root"):
        yield f"the image runs as root (User {user!r})"
    said = berth(*entrypoint, "--version")
    if not said.startswith("berth "):
        yield f"--version printed {said!r}"
    if "Usage: berth" not in berth(*entrypoint, *berth.settings["Cmd"]):
        yield "without arguments the image does not print its help"
    yield from sbom_faults(berth)
    if "EROFS" not in berth("python3", "-c", _WRITE):
        yield "the root of the container can be written to: this trial proves nothing"
    checked = berth(
        *entrypoint, "check-config", "/run/berth/config.yaml", inputs={"config.yaml": _KUBE_CONFIGURATION}
    )
    if "default-scheduler" not in checked:
        yield f"check-config printed {checked!r}"
    placed = berth(
        *entrypoint, "simulate", "-f", "/run/berth/pod.yaml", "-o", "json", inputs={"pod.yaml": _POD}
    )
    if '"a"' not in placed:
        yield f"simulate did not place the pod: {placed}"


def sbom_faults(berth: Container) -> Iterator[str]:
    """Yield how the list of what an image has (SBOM) differs from what is installed in the image."""
    listed = json.loads((berth.root / "berth/sbom.cdx.json").read_text())
    named = {(_normal(one["name"]), one["version"]) for one in listed["components"]}
    installed = json.loads(berth("python3", "-c", _INSTALLED))
    there = {(_normal(name), version) for name, version in installed}
    for name, version in sorted(there - named):
        yield f"sbom.cdx.json lacks {name} {version}, which is installed"
    for name, version in sorted(named - there):
        yield f"sbom.cdx.json names {name} {version}, which is not installed"


_WRITE: Final = """\
import errno
try:
    open("/tmp/new", "w")
except OSError as err:
    print(errno.errorcode[err.errno])
"""
_INSTALLED: Final = """\
import importlib.metadata, json
print(json.dumps([(one.name, one.version) for one in importlib.metadata.distributions(path=[
    one for one in __import__('sys').path if 'site-packages' in one])]))
"""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def example_faults(examples: Container) -> Iterator[str]:
    """Yield what is wrong with the image of the examples."""
    files = {"pod.yaml": _POD, "config.yaml": _EXAMPLE}
    command = ("python3", "-m", "berth_host", "simulate", "--config", "/run/berth/config.yaml")
    said = examples(*command, "-f", "/run/berth/pod.yaml", "-o", "json", inputs=files)
    if '"a"' not in said:
        yield f"simulate with a plugin of the examples did not place the pod: {said}"


def make(store: Path) -> list[str]:
    """Build both images in `store` and return one line for each fault found. Raises ImageError."""
    images = Images(store)
    images.make_bases()
    images.trust_as_here()
    images.build(ROOT / "Dockerfile", BERTH)
    images.build(ROOT / "examples/Dockerfile", EXAMPLES, BERTH=BERTH)
    with images.container(BERTH) as berth:
        faults = list(faults_of(berth))
    with images.container(EXAMPLES) as examples:
        return faults + list(example_faults(examples))


def main(arguments: list[str]) -> int:
    """Build and try the images; print faults and return 1 if there are any."""
    parser = argparse.ArgumentParser(description="Build and try the images.")
    parser.add_argument("--store", type=Path, help="an empty folder to keep the images in")
    given = parser.parse_args(arguments)
    if why := why_not():
        print(f"image: {why}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="berth-images-") as temporary:
        store = given.store or Path(temporary)
        store.mkdir(parents=True, exist_ok=True)
        try:
            faults = make(store.absolute())
        except ImageError as err:
            print(f"image: {err}", file=sys.stderr)
            return 1
    for fault in faults:
        print(f"image: {fault}", file=sys.stderr)
    if not faults:
        print("image: built; runs without root, with a read-only root; sbom.cdx.json names what is installed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
