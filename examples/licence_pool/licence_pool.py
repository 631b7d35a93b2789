"""LicencePool: a pod with the label `licence` gets one of `licences`, which a server outside activates."""

from typing import Any
from urllib.request import Request, urlopen

from berth_sdk import DependsOn, Need, ObjectPatch, Plugin, PreBindResult, Reservations, Scope, Status


class LicencePool(Plugin):
    """A pool of licences. PUT `server`/3 activates licence 3. 200: it is active; 202: it will be."""

    KEY = "example.com/licence"
    scope = Scope(label_selector="licence")
    depends_on = DependsOn.OTHER
    needs = (Need.nodes(), Need.pods(annotation_prefixes=(KEY,)))

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        self.all = {str(number) for number in range(int(args["licences"]))}
        self.held = Reservations[str](handle, lambda pod: pod.annotations.get(self.KEY))

    def reserve(self, state: Any, pod: Any, node_name: str) -> Status:
        if "licence" not in pod.labels:
            return Status.skip()
        free = self.held.take(state, pod, node_name, lambda used: min(self.all - {*used}, default=None))
        return Status.success() if free else Status.unschedulable("no licence is free")

    def pre_bind(self, state: Any, pod: Any, node_name: str, patched: Any) -> PreBindResult:
        licence = self.held[state.cycle_id].value
        with urlopen(Request(f"{self.args['server']}/{licence}", method="PUT"), timeout=5) as answer:
            if answer.status == 202:
                return PreBindResult(Status.success(), ask_again_after_s=0.2)
        told = {"metadata": {"annotations": {self.KEY: licence}}}
        patch = ObjectPatch(resource="pods", ref=pod.ref, merge_patch=told)
        return PreBindResult(Status.success(), (patch,), done_when_applied=True)

    def post_bind(self, state: Any, pod: Any, node_name: str) -> None:
        self.held.give_back(state)  # from now on, the annotation of the pod holds the licence

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
        self.held.give_back(state)

    def reconcile(self, live: Any) -> Any:
        return self.held.take_over(live)
