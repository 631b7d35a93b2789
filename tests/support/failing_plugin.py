"""The faulty plugin with more to go wrong: it decides about waits, binds by itself, asks much of its host.

    python -m support.failing_plugin --listen unix:PATH       with BERTH_FAULTS naming a folder

Beside the files of `support.faulty_plugin`, the folder has: `pid`; `forget` (it knows no reservation);
`order` (a list in JSON, taken away when it is carried out) and `outcome` (what came of it); `cluster` (the
URL of the API server that Bind writes to, for pods with the label `binds`). Driven by `support.faults`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import BerthError
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.results import BindResult, LiveReservation, PermitResult, PreBindResult, WaitingPod
from berth_sdk.status import SUCCESS, Status
from support.faulty_plugin import FOLDER, HANG_S, Faulty, note, refused_before, serve

LOOKS_S: Final = 0.01
PERMITS: Final[Mapping[str, Callable[[], PermitResult | Status]]] = {
    "waits": PermitResult.wait,
    "approves": lambda: SUCCESS,
    "denies": lambda: Status.unschedulable("denied"),
}


class Failing(Faulty):
    """Labels of a pod: `permit` (a key of PERMITS) with `early` (`allow`, `reject`), decided before the
    answer; `binds` (`chosen`, `elsewhere`, `nowhere`), after which Bind hangs; `rounds` (PreBind has no end).
    """

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        threading.Thread(target=self._obey, daemon=True).start()

    def reconcile(self, live: Sequence[LiveReservation]) -> Sequence[LiveReservation] | None:
        note("reconcile", str(len(live)), "-")
        for item in live:
            token = item.state.token
            note("waits" if item.waiting_on_permit else "lives", item.state.cycle_id, repr(token))
        return live if (FOLDER / "forget").exists() else None

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        if "permit" not in pod.labels:
            return super().permit(state, pod, node_name)
        if "early" in pod.labels:
            decided = self._decide(pod.labels["early"], pod.uid, state.cycle_id)
            note("decided", state.cycle_id, decided)
        return PERMITS[pod.labels["permit"]]()

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[Any]) -> PreBindResult:
        if "rounds" in pod.labels:
            note("round", state.cycle_id, pod.uid)
            return PreBindResult(SUCCESS, ask_again_after_s=0.001)
        return super().pre_bind(state, pod, node_name, patched)

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> BindResult:
        note("bind", state.cycle_id, node_name)
        where = pod.labels.get("binds")
        if where is None or refused_before(pod.uid):
            return super().bind(state, pod, node_name)
        if where != "nowhere":
            other = "n1" if node_name == "n0" else "n0"
            bind(pod, node_name if where == "chosen" else other)
        time.sleep(HANG_S)
        return BindResult(SUCCESS)

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        note("post-bind", state.cycle_id, pod.uid)

    # --- orders ----------------------------------------------------------------------------------------

    def _obey(self) -> None:
        while True:
            time.sleep(LOOKS_S)
            try:
                order, *args = json.loads((FOLDER / "order").read_text())
            except OSError:
                continue
            (FOLDER / "order").unlink()
            part = FOLDER / "outcome.part"
            part.write_text(
                json.dumps(self._flood(*args) if order == "flood" else self._decide(order, *args))
            )
            part.rename(FOLDER / "outcome")

    def _decide(self, verdict: str, uid: str, cycle_id: str) -> str:
        waiting = WaitingPod(
            pod=Pod(name="x", uid=uid), cycle_id=cycle_id, node_name="", pending_plugins=(), deadline_s=0.0
        )
        if verdict == "allow":
            return self.handle.allow(waiting).name
        return self.handle.reject(waiting, "rejected").name

    def _flood(self, count: int, thread_count: int) -> dict[str, int]:
        """So many calls in so many threads; the outcomes by name."""
        seen: Counter[str] = Counter()

        def ask() -> None:
            for _ in range(count // thread_count):
                try:
                    self.handle.waiting_pods()
                    seen["answered"] += 1
                except BerthError as err:
                    seen[type(err).__name__] += 1

        threads = [threading.Thread(target=ask) for _ in range(thread_count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return dict(seen)


def bind(pod: Pod, node_name: str) -> None:
    """Bind it, past the host."""
    url = (FOLDER / "cluster").read_text()
    body = {
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "target": {"kind": "Node", "name": node_name},
    }
    request = urllib.request.Request(
        f"{url}/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/binding", json.dumps(body).encode()
    )
    with urllib.request.urlopen(request, timeout=HANG_S):
        pass


if __name__ == "__main__":
    (FOLDER / "pid").write_text(str(os.getpid()))
    sys.exit(serve(sys.argv[1:], "support.failing_plugin:Failing"))
