"""A pod acted out: its containers' commands as local processes, in the order and with the volumes it says.

There is no container engine here. Where the machine lets root make mount namespaces, each container gets a
root of its own, read-only, with its volumes mounted, and runs as the pod's user (`container_root.sh`).
Elsewhere the paths of the volumes are replaced by folders, and the container runs as this user, in a folder
that it cannot write to.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final
from urllib.parse import urlsplit

from berth_bench.versus.real_servers import ADMIN, RealServers
from support.chart import Json
from support.deployed import token_of
from support.places import ROOT

ACCOUNT_FOLDER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
WORK_FOLDER: Final = "/berth"
"""Where an image of the examples has the repository."""
_SCRIPT: Final = Path(__file__).with_name("container_root.sh")
_ENDS_WITHIN_S: Final = 60.0
_ENTRYPOINT: Final = (sys.executable, "-m", "berth_host")
"""Of the image that the Dockerfile makes."""


def why_not_isolated() -> str:
    """Why containers cannot have a root of their own here; empty where they can."""
    if os.geteuid() != 0:
        return "mount namespaces need root"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    tools = ("unshare", "setpriv", "chroot", "mount")
    missing = [name for name in tools if shutil.which(name, path=path) is None]
    if missing:
        return f"no {', '.join(missing)}"
    probe = ["unshare", "--mount", "--propagation", "private", "mount", "-t", "tmpfs", "none", "/mnt"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


class ActedPod:
    """A pod of a Deployment. `start`, then `probe`; `stop` ends it as a kubelet does.

    `folder` must have a short name: sockets lie in it. `configmaps`: those that the pod mounts, by name.
    """

    def __init__(
        self,
        servers: RealServers,
        deployment: Json,
        configmaps: Mapping[str, Json],
        folder: Path,
        *,
        isolated: bool = False,
    ) -> None:
        self._servers = servers
        self._template: Json = deployment["spec"]["template"]
        self.spec: Json = self._template["spec"]
        self._namespace: str = deployment["metadata"]["namespace"]
        self.metadata = {
            "name": f"{deployment['metadata']['name']}-0",
            "namespace": self._namespace,
            "uid": str(uuid.uuid4()),
        }
        """The pod's own, as the downward API tells it."""
        self._configmaps = configmaps
        self._folder = folder
        self._isolated = isolated
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._volumes = {
            volume["name"]: folder / "volumes" / volume["name"] for volume in self.spec["volumes"]
        }

    def __enter__(self) -> ActedPod:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Fill the volumes, run init containers to their end, start sidecars and then the containers."""
        for volume in self.spec["volumes"]:
            self._fill(volume)
        for container in self.spec["initContainers"]:
            process = self._spawn(container)
            if container.get("restartPolicy") != "Always" and process.wait(_ENDS_WITHIN_S):
                raise RuntimeError(f"{container['name']} failed:\n{self.log_of(container['name'])}")
        for container in self.spec["containers"]:
            self._spawn(container)

    def run_to_its_end(self) -> int:
        """Return the exit code of a pod that ends by itself, of one container."""
        for volume in self.spec["volumes"]:
            self._fill(volume)
        (container,) = self.spec["containers"]
        return self._spawn(container).wait(_ENDS_WITHIN_S)

    def stop(self) -> dict[str, int]:
        """TERM to the containers, then to the sidecars, the last first; exit codes by name."""
        names = [one["name"] for one in self.spec["containers"]]
        names += [one["name"] for one in reversed(self.spec.get("initContainers", ()))]
        codes = {}
        for name in names:
            process = self._processes.pop(name, None)
            if process is None:
                continue
            process.terminate()
            if process.stdin is not None:
                process.stdin.close()
            try:
                codes[name] = process.wait(_ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                codes[name] = process.wait()
        return codes

    def log_of(self, name: str) -> str:
        """Return the output of a container."""
        return self._log(name).read_text(errors="replace")

    def alive(self) -> dict[str, bool]:
        """Which containers run."""
        return {name: process.poll() is None for name, process in self._processes.items()}

    def probe(self, container: Json, which: str) -> int:
        """Return the status that a probe of the kubelet gets; 0 when nobody answers."""
        asked = container[which]["httpGet"]
        port = asked["port"]
        if isinstance(port, str):
            (port,) = [one["containerPort"] for one in container["ports"] if one["name"] == port]
        return _answer(f"{asked['scheme'].lower()}://127.0.0.1:{port}{asked['path']}")[0]

    def plugins(self) -> dict[str, Json]:
        """Return the attachments of the scheduler's plugins, by name; none while it does not answer."""
        (port,) = [one["containerPort"] for one in self.spec["containers"][0]["ports"]]
        url = f"https://127.0.0.1:{port}/berth/v1/plugins"
        code, text = _answer(url, self._servers.tokens[ADMIN])
        found = json.loads(text)["plugins"] if code == 200 else []
        return {one["name"]: one["attachment"] for one in found if one["attachment"]}

    def run(self, container: Json, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Something else in a container's place, with its user, root and volumes, to its end."""
        line, environment = self._line(container, command)
        return subprocess.run(
            line, env=environment, cwd=self._cwd, capture_output=True, text=True, timeout=60, check=False
        )

    # --- steps ---------------------------------------------------------------------------------

    @property
    def _user(self) -> int:
        user: int = self.spec["securityContext"]["runAsUser"]
        return user

    @property
    def _cwd(self) -> Path:
        return Path("/") if self._isolated else self._folder / "unwritable"

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _fill(self, volume: Json) -> None:
        folder = self._volumes[volume["name"]]
        folder.mkdir(parents=True)
        if "emptyDir" in volume:
            folder.chmod(0o777)  # as a kubelet makes it
        elif "configMap" in volume:
            for name, text in self._configmaps[volume["configMap"]["name"]]["data"].items():
                (folder / name).write_text(self._placed(text))
        else:
            for source in volume["projected"]["sources"]:
                self._project(folder, source)

    def _project(self, folder: Path, source: Json) -> None:
        if "serviceAccountToken" in source:
            path = folder / source["serviceAccountToken"]["path"]
            path.write_text(token_of(self._servers, self.spec["serviceAccountName"], self._namespace))
        elif "configMap" in source:
            # kube-root-ca.crt is made by a controller that does not run.
            (item,) = source["configMap"]["items"]
            (folder / item["path"]).write_bytes(self._servers.ca_file.read_bytes())
        else:
            (item,) = source["downwardAPI"]["items"]
            (folder / item["path"]).write_text(self._namespace)

    def _spawn(self, container: Json) -> subprocess.Popen[bytes]:
        command = container.get("command") or _ENTRYPOINT
        line, environment = self._line(container, [*command, *container.get("args", ())])
        self._cwd.mkdir(exist_ok=True)
        if not self._isolated:
            self._cwd.chmod(0o555)
        with self._log(container["name"]).open("wb") as log:
            process = subprocess.Popen(
                line,
                # Without `stdin: true` a container reads nothing.
                stdin=subprocess.PIPE if container.get("stdin") else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self._cwd,
            )
        self._processes[container["name"]] = process
        return process

    def _line(self, container: Json, command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """Return the command line and the environment of a container's process."""
        environment = {**_image_environment(), **self._cluster_environment()}
        environment |= {one["name"]: self._value(one) for one in container.get("env", ())}
        words = [self._placed(word) for word in command]
        if not self._isolated:
            if "serviceAccountName" in self.spec:
                environment["KUBECONFIG"] = str(self._servers.kubeconfig(token=self._token()))
            # The contents of the image's working folder.
            environment["PYTHONPATH"] = f"{environment['PYTHONPATH']}{os.pathsep}{ROOT}"
            return [word.replace("examples/", f"{ROOT}/examples/") for word in words], environment
        root = self._folder / f"root-{container['name']}"
        root.mkdir(exist_ok=True)
        line = ["unshare", "--mount", "--propagation", "private", "sh", str(_SCRIPT)]
        line += [str(root), str(self._user), container.get("workingDir", "/")]
        return [*line, *self._binds(container), "--", *words], environment

    def _value(self, variable: Json) -> str:
        if "value" in variable:
            value: str = variable["value"]
            if not self._isolated and value.startswith(f"{WORK_FOLDER}/"):
                return str(ROOT / Path(value).relative_to(WORK_FOLDER))
            return self._placed(value)
        section, _, field = variable["valueFrom"]["fieldRef"]["fieldPath"].partition(".")
        assert section == "metadata"
        return str(self.metadata[field])

    def _binds(self, container: Json) -> Iterator[str]:
        yield from _image_binds()
        for mount in container["volumeMounts"]:
            source = self._volumes[mount["name"]] / mount.get("subPath", "")
            yield f"{'ro' if mount.get('readOnly') else 'rw'}:{source}:{mount['mountPath']}"

    def _cluster_environment(self) -> dict[str, str]:
        where = urlsplit(self._servers.url)
        return {"KUBERNETES_SERVICE_HOST": str(where.hostname), "KUBERNETES_SERVICE_PORT": str(where.port)}

    def _token(self) -> str:
        return token_of(self._servers, self.spec["serviceAccountName"], self._namespace)

    def _placed(self, text: str) -> str:
        """Return the text with the places that volumes have here; as it is where they are mounted."""
        if self._isolated:
            return text
        for container in (*self.spec.get("initContainers", ()), *self.spec["containers"]):
            for mount in container["volumeMounts"]:
                source = self._volumes[mount["name"]] / mount.get("subPath", "")
                text = text.replace(mount["mountPath"], str(source))
        return text


def _image_environment() -> dict[str, str]:
    """PATH and modules, as the images have them; HOME as a container runtime sets it for an unknown user."""
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    found = {"PATH": path, "HOME": "/", "PYTHONDONTWRITEBYTECODE": "1"}
    folders = [str(ROOT / name) for name in ("host", "sdk", "plugins")]
    return {**found, "PYTHONPATH": os.pathsep.join(folders)}


def _image_binds() -> Iterator[str]:
    """Python, what is installed, and the repository, read-only, where they are; and in /berth."""
    folders = {Path(sys.prefix), Path(sys.base_prefix), ROOT, *map(Path, _installed_elsewhere())}
    shown = sorted(folder for folder in folders if not folder.is_relative_to("/usr"))
    yield from (f"ro:{folder}:{folder}" for folder in shown)
    yield f"ro:{ROOT}:{WORK_FOLDER}"


def _installed_elsewhere() -> Iterator[str]:
    """Folders of the module path outside of Python's own: editable installs."""
    inside = (Path(sys.prefix), Path(sys.base_prefix), ROOT)
    for entry in sys.path:
        path = Path(entry)
        if entry and path.is_dir() and not any(path.is_relative_to(one) for one in inside):
            yield entry


def _answer(url: str, token: str = "") -> tuple[int, str]:
    """Status and text; 0 when nobody answers."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as err:
        return err.code, ""
    except OSError:
        return 0, ""
