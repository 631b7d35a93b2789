"""An HTTP scheduler extender for GPU memory, as kube-scheduler and berth call it. Standard library alone.

    python extender.py --api-server http://127.0.0.1:8001 [--listen 127.0.0.1:8888]

Verbs: `/filter`, `/prioritize` and `/bind`. It answers calls with full node objects and, where the scheduler
is told `nodeCacheCapable: true`, calls with names alone. `/bind` writes the number of the GPU to the pod and
then binds the pod, because nothing else tells the extender which node was chosen.

Nodes and pods come from a watch of its own. The API server must be reachable without credentials, as through
`kubectl proxy`. Ends when its standard input ends, if it was started with `--with-parent`.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import gpu_memory
from gpu_memory import GPU, GPUS, MEMORY

AGAIN_S: Final = 1.0
"""The pause before a list or a watch that failed is tried again."""
TIMEOUT_S: Final = 10.0
Object = dict[str, Any]


class Api:
    """Requests to the API server."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def ask(self, method: str, path: str, body: Object | None = None, kind: str = "json") -> Object:
        """Return the answer to one request. Raises OSError, with the server's message where it has one."""
        with self._open(method, path, body, kind, TIMEOUT_S) as answer:
            parsed: Object = json.load(answer)
            return parsed

    def changes(self, plural: str, version: str) -> Iterator[tuple[str, Object]]:
        """Yield (ADDED, MODIFIED or DELETED, object) until the watch ends. Raises OSError."""
        path = f"/api/v1/{plural}?watch=true&resourceVersion={version}"
        with self._open("GET", path, None, "json", None) as lines:
            for line in lines:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                if event["type"] != "BOOKMARK":
                    yield event["type"], event["object"]

    def _open(self, method: str, path: str, body: Object | None, kind: str, timeout_s: float | None) -> Any:
        request = urllib.request.Request(
            f"{self._url}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": f"application/{kind}"},
            method=method,
        )
        try:
            return urllib.request.urlopen(request, timeout=timeout_s)
        except urllib.error.HTTPError as err:
            with err:
                raise OSError(
                    f"{method} {path}: {err.code} {err.read(1024).decode(errors='replace')}"
                ) from err


class Cluster:
    """The nodes and the pods with GPU memory, as the watches show them, and the pods that are being bound.

    Every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: dict[str, list[int]] = {}
        self._node_of: dict[str, str] = {}
        self._pods: dict[str, dict[str, tuple[int, str]]] = {}
        """By node and uid: the GiB of a pod, and the annotation with its GPU."""

    def see_node(self, change: str, node: Object) -> None:
        """Take a change of a node over."""
        with self._lock:
            if change == "DELETED":
                self._nodes.pop(node["metadata"]["name"], None)
            else:
                self._nodes[node["metadata"]["name"]] = sizes_of(node)

    def see_pod(self, change: str, pod: Object) -> None:
        """Take a change of a pod over."""
        metadata, spec = pod["metadata"], pod["spec"]
        over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        with self._lock:
            if change == "DELETED" or over:
                self._forget(metadata["uid"])
            elif spec.get("nodeName") and (gib := wanted_of(pod)):
                gpu = (metadata.get("annotations") or {}).get(GPU, "")
                self._count(metadata["uid"], spec["nodeName"], gib, gpu)

    def see_nodes(self, nodes: list[Object]) -> None:
        """Take a list of all nodes over."""
        with self._lock:
            self._nodes = {node["metadata"]["name"]: sizes_of(node) for node in nodes}

    def see_pods(self, pods: list[Object]) -> None:
        """Take a list of all pods over."""
        present = {pod["metadata"]["uid"] for pod in pods}
        with self._lock:
            for uid in self._node_of.keys() - present:
                self._forget(uid)
        for pod in pods:
            self.see_pod("ADDED", pod)

    def left(self, node_name: str, sizes_gib: list[int] | None = None) -> tuple[list[int], list[int]]:
        """Return (GiB, GiB left) of each GPU of a node. `sizes_gib`: of a node that the scheduler sent."""
        with self._lock:
            return self._left(node_name, sizes_gib)

    def take(self, uid: str, node_name: str, gib: int) -> int | None:
        """Choose the pod's GPU, and count the pod from now on. None: no GPU has enough left."""
        with self._lock:
            gpu = gpu_memory.best_gpu(self._left(node_name)[1], gib)
            if gpu is not None:
                self._count(uid, node_name, gib, str(gpu))
        return gpu

    def give_back(self, uid: str) -> None:
        """Forget a pod that could not be bound."""
        with self._lock:
            self._forget(uid)

    def _left(self, node_name: str, sizes_gib: list[int] | None = None) -> tuple[list[int], list[int]]:
        sizes_gib = self._nodes.get(node_name, []) if sizes_gib is None else sizes_gib
        return sizes_gib, gpu_memory.left(sizes_gib, self._pods.get(node_name, {}).values())

    def _count(self, uid: str, node_name: str, gib: int, gpu: str) -> None:
        self._forget(uid)
        self._node_of[uid] = node_name
        self._pods.setdefault(node_name, {})[uid] = (gib, gpu)

    def _forget(self, uid: str) -> None:
        node_name = self._node_of.pop(uid, None)
        if node_name is not None:
            del self._pods[node_name][uid]


class Verbs:
    """The answers to the scheduler's calls."""

    def __init__(self, api: Api, cluster: Cluster) -> None:
        self._api = api
        self._cluster = cluster
        self._binding = threading.Lock()

    def filter(self, args: Object) -> Object:
        """Answer ExtenderArgs with an ExtenderFilterResult."""
        wanted = wanted_of(args["Pod"])
        kept: list[str] = []
        failed: dict[str, str] = {}
        never: dict[str, str] = {}
        for name, left in self._nodes(args):
            refused = gpu_memory.refusal(*left, wanted)
            if refused is None:
                kept.append(name)
            else:
                reason, may_change = refused
                (failed if may_change else never)[name] = reason
        result: Object = {"FailedNodes": failed, "FailedAndUnresolvableNodes": never}
        if args.get("NodeNames") is not None:
            return {**result, "NodeNames": kept}
        wanted_names = set(kept)
        items = [node for node in args["Nodes"]["items"] if node["metadata"]["name"] in wanted_names]
        return {**result, "Nodes": {"items": items}}

    def prioritize(self, args: Object) -> list[Object]:
        """Answer ExtenderArgs with a HostPriorityList."""
        wanted = wanted_of(args["Pod"])
        return [{"Host": name, "Score": gpu_memory.points(*left, wanted)} for name, left in self._nodes(args)]

    def bind(self, args: Object) -> Object:
        """Answer ExtenderBindingArgs with an ExtenderBindingResult: write the GPU to the pod, and bind it."""
        name, namespace, uid = args["PodName"], args["PodNamespace"], args["PodUID"]
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        with self._binding:
            try:
                if wanted := wanted_of(self._api.ask("GET", path)):
                    gpu = self._cluster.take(uid, args["Node"], wanted)
                    if gpu is None:
                        return {"Error": f"{gpu_memory.FULL}: {args['Node']} was filled meanwhile"}
                    patch = {"metadata": {"uid": uid, "annotations": {GPU: str(gpu)}}}
                    self._api.ask("PATCH", path, patch, "merge-patch+json")
                target = {"apiVersion": "v1", "kind": "Node", "name": args["Node"]}
                metadata = {"name": name, "namespace": namespace, "uid": uid}
                binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
                self._api.ask("POST", f"{path}/binding", binding)
            except OSError as err:
                self._cluster.give_back(uid)
                return {"Error": str(err)}
        return {"Error": ""}

    def _nodes(self, args: Object) -> Iterator[tuple[str, tuple[list[int], list[int]]]]:
        if args.get("NodeNames") is not None:
            for name in args["NodeNames"]:
                yield name, self._cluster.left(name)
        else:
            for node in args["Nodes"]["items"]:
                name = node["metadata"]["name"]
                yield name, self._cluster.left(name, sizes_of(node))


def sizes_of(node: Mapping[str, Any]) -> list[int]:
    """Return the GiB of each GPU of a Node object."""
    offered = node.get("status", {}).get("allocatable", {}).get(MEMORY, "0")
    return gpu_memory.sizes(gpu_memory.amount(offered), (node["metadata"].get("labels") or {}).get(GPUS, ""))


def wanted_of(pod: Mapping[str, Any]) -> int:
    """Return the GiB that a Pod object requests."""
    requests = (c.get("resources", {}).get("requests", {}) for c in pod["spec"]["containers"])
    return sum(gpu_memory.amount(request.get(MEMORY, "0")) for request in requests)


def follow(
    api: Api,
    plural: str,
    take_over: Callable[[list[Object]], None],
    see: Callable[[str, Object], None],
    listed: threading.Event,
) -> None:
    """List the objects, then follow their changes, again and again. Sets `listed` after the first list."""
    while True:
        try:
            answer = api.ask("GET", f"/api/v1/{plural}")
            take_over(answer["items"])
            listed.set()
            for change, item in api.changes(plural, answer["metadata"]["resourceVersion"]):
                see(change, item)
        except OSError as err:
            print(f"cannot follow {plural}, trying again: {err}", file=sys.stderr)
        time.sleep(AGAIN_S)


def handler_of(verbs: Verbs) -> type[BaseHTTPRequestHandler]:
    """Return the class that answers the scheduler's requests."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps the connection, as kube-scheduler does
        wbufsize = -1  # headers and a short body leave in one packet
        disable_nagle_algorithm = True  # the end of a long body does not wait for an acknowledgement

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            answers = {"/filter": verbs.filter, "/prioritize": verbs.prioritize, "/bind": verbs.bind}
            answer = answers.get(self.path)
            if answer is None:
                self._reply(404, {"Error": f"{self.path} is none of {', '.join(answers)}"})
                return
            try:
                self._reply(200, answer(json.loads(body)))
            except (KeyError, TypeError, ValueError) as err:
                self._reply(400, {"Error": f"the request cannot be read: {err!r}"})

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing for a request that was answered."""

        def _reply(self, code: int, answer: Any) -> None:
            body = json.dumps(answer, separators=(",", ":")).encode()  # as Go writes it
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def main(arguments: list[str]) -> int:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="An HTTP scheduler extender for GPU memory.")
    parser.add_argument("--api-server", required=True, metavar="URL", help="such as that of kubectl proxy")
    parser.add_argument("--listen", default="127.0.0.1:8888", metavar="HOST:PORT", help="port 0: a free one")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input ends")
    options = parser.parse_args(arguments)
    host, _, port = options.listen.rpartition(":")
    api, cluster = Api(options.api_server), Cluster()
    ways = (("nodes", cluster.see_nodes, cluster.see_node), ("pods", cluster.see_pods, cluster.see_pod))
    for plural, take_over, see in ways:
        listed = threading.Event()
        threading.Thread(target=follow, args=(api, plural, take_over, see, listed), daemon=True).start()
        listed.wait()
    with ThreadingHTTPServer((host, int(port)), handler_of(Verbs(api, cluster))) as server:
        print(f"serving at http://{host}:{server.server_port}", flush=True)
        if options.with_parent:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            sys.stdin.read()
            server.shutdown()
        else:
            server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
