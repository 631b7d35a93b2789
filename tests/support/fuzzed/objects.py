"""Random and hostile objects, and what is done with them: creations, patches, status patches and deletions.

A step is a dict that JSON can hold: `do` (create, patch, status, delete), `kind`, `name`, and for all but
delete `body`, a tree (`trees`). Many of the objects are refused; the API server says which.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from support.fuzzed.gadgets import KIND as GADGET
from support.fuzzed.gadgets import LABEL, VERSION
from support.fuzzed.trees import DIGITS, KEYS, NEST, PAIRS, RAW, REPEAT, Tree

Step = dict[str, Any]
NODES: Final = 4
"""Nodes that always exist: node-0 and so on."""
DRIVER: Final = "driver.example.com"
CLASS: Final = "fuzzed"
"""A DeviceClass, a StorageClass and a PriorityClass that always exist."""
WIDGET: Final = "example.com/widget"
_MOST_NAMES: Final = 12
"""Names of each kind, so that patches and deletions meet objects."""
_GADGETS: Final = 4
"""Names of gadgets: fewer, so that pods meet theirs."""
_KINDS: Final = (
    *(["Pod"] * 14),
    *(["Node"] * 2),
    *(["ResourceClaim"] * 2),
    "PodDisruptionBudget",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "PodGroup",
    "Service",
    "Namespace",
    *([GADGET] * 2),
)
_DEPTHS: Final = (1, 30, 200, 300, 1023, 1025, 1100, 3000, 9000)
_STRINGS: Final[tuple[Tree, ...]] = (
    "",
    "a",
    "ä☃",
    "\u0000\u0001\u007f",
    "\u2028\u2029",
    "managedFields",
    '{"managedFields":[{"a":"\\"}]"}]}',
    {RAW: '"\\ud800"'},
    {RAW: '"\\ud83d\\ude00"'},
    {RAW: '"\\udc00\\ud800"'},
    {RAW: '"\xff\xfe"'},
    {RAW: '"\xc0\x80"'},
    {RAW: '"\\/\\b\\u0041"'},
    {DIGITS: ["x", 4000, ""]},
)
_NUMBERS: Final[tuple[Tree, ...]] = (
    0,
    -1,
    2147483647,
    2147483648,
    9223372036854775807,
    {RAW: "9223372036854775808"},
    {RAW: "1" * 400},
    {RAW: "1e400"},
    {RAW: "-0.0"},
    {RAW: "1E-400"},
    1.5,
)
_QUANTITIES: Final[tuple[Tree, ...]] = (
    0,
    1,
    "1",
    "100m",
    "1u",
    "1n",
    "0.5",
    "1e3",
    "1E3",
    "1Ki",
    "1.5Gi",
    "7E",
    "8E",
    "16Ei",
    "9223372036854775807",
    "9223372036854775808",
    "+1",
    "1e18",
    "1e19",
    "1e-20",
    {DIGITS: ["0", 5000, "1"]},
    {DIGITS: ["9", 5000, ""]},
    {DIGITS: ["9", 5000, "m"]},
    {DIGITS: ["0.", 1, "0" * 5000 + "1"]},
    {RAW: "0." + "1" * 300},
    {RAW: "1e3"},
)
_KEYS_OF_LABELS: Final = ("app", "a/b", "example.com/" + "k" * 63, "managedFields", "zone")
_BAD_QUANTITIES: Final[tuple[Tree, ...]] = ("-1", "", "0x10", None, [], {RAW: "1" * 400})
_ODD: Final[tuple[Tree, ...]] = (None, [], {}, "", 0, False, [None], {"": None})
_ODD_STATUS: Final = tuple(odd for odd in _ODD if odd is not None)
"""null would delete the condition that berth wrote. No scheduler writes it again before its next attempt."""


class Fuzz:
    """Makes steps from a seed. `most_bytes`: about how large the largest objects are."""

    def __init__(self, seed: int, most_bytes: int = 1_500_000) -> None:
        self._random = random.Random(seed)
        self._most_bytes = most_bytes
        self._known: dict[str, set[str]] = {}

    def steps(self, count: int) -> list[Step]:
        """Return the next steps."""
        return [self._step() for _ in range(count)]

    def _step(self) -> Step:
        kind = self._one_of(_KINDS)
        known = self._known.setdefault(kind, set())
        roll = self._random.random()
        if known and roll < 0.12:
            name = self._one_of(sorted(known))
            known.discard(name)
            return {"do": "delete", "kind": kind, "name": name}
        if known and roll < 0.35:
            name = self._one_of(sorted(known))
            if kind in ("Pod", "Node", "PersistentVolumeClaim") and self._chance(0.4):
                return {"do": "status", "kind": kind, "name": name, "body": {"status": self._status(kind)}}
            return {"do": "patch", "kind": kind, "name": name, "body": self._patch(kind)}
        number = self._random.randrange(_GADGETS if kind == GADGET else _MOST_NAMES)
        name = f"{'node' if kind == 'Node' else 'fuzzed'}-x{number}"
        if name in known:
            known.discard(name)
            return {"do": "delete", "kind": kind, "name": name}
        known.add(name)
        return {"do": "create", "kind": kind, "name": name, "body": self._object(kind, name)}

    # --- chance ----------------------------------------------------------------------------------

    def _one_of(self, choices: Sequence[Any]) -> Any:
        return choices[self._random.randrange(len(choices))]

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _count(self) -> int:
        """Return the length of a list: mostly short, sometimes enormous."""
        if self._chance(0.03):
            return self._random.randrange(200, 3000)
        return self._random.randrange(4)

    def _list(self, item: Callable[[], Tree]) -> Tree:
        count = self._count()
        if count < 10:
            return [_numbered(item(), at) for at in range(count)]
        # At most what fits: an item has about a hundred bytes.
        return {REPEAT: [item(), min(count, self._most_bytes // 100)]}

    # --- parts -----------------------------------------------------------------------------------

    def _text(self) -> Tree:
        return self._one_of(_STRINGS)

    def _labels(self) -> Tree:
        if self._chance(0.05):
            return {PAIRS: [["app", "a"], ["app", "b"], ["zone", "z"]]}
        if self._chance(0.02):
            return {KEYS: ["v", self._random.randrange(100, 2000)]}
        keys = self._random.sample(_KEYS_OF_LABELS, self._random.randrange(3))
        made = {key: self._one_of(("", "a", "b", "x" * 63)) for key in keys}
        return made | ({"": "-"} if self._chance(0.02) else {})

    def _quantity(self) -> Tree:
        if self._chance(0.75):
            return self._one_of(("1m", "10m", "100m", "1", "1Ki", "10Mi"))
        return self._one_of(_QUANTITIES if self._chance(0.9) else _BAD_QUANTITIES)

    def _amounts(self, *names: str) -> Tree:
        chosen = [name for name in names if self._chance(0.6)]
        pairs = [[name, self._quantity()] for name in chosen]
        if pairs and self._chance(0.05):
            return {PAIRS: [*pairs, [chosen[0], self._quantity()]]}
        return dict(pairs)

    def _free(self, deep: bool = True) -> Tree:
        """Return any JSON, for fields that the API server does not look into."""
        roll = self._random.random()
        if roll < 0.2 and deep:
            opened, closed = self._one_of((('{"a":', "}"), ("[", "]"), ('{"f:a":[', "]}")))
            return {NEST: [self._one_of(_DEPTHS), opened, closed]}
        if roll < 0.4:
            return self._text()
        if roll < 0.55:
            return self._one_of(_NUMBERS)
        if roll < 0.65:
            return {PAIRS: [["a", self._text()], ["a", self._one_of(_NUMBERS)]]}
        if roll < 0.7:
            return {REPEAT: [self._one_of(_NUMBERS), self._count()]}
        return {self._one_of(("a", "managedFields", "metadata", "")): self._one_of(_ODD)}

    def _metadata(self, name: str, kind: str) -> Tree:
        made: dict[str, Tree] = {"name": name, "labels": self._labels()}
        if kind not in ("Node", "Namespace", "PersistentVolume"):
            made["namespace"] = "default"
        if kind == "Pod" and self._chance(0.2):
            made["labels"] = {LABEL: f"fuzzed-x{self._random.randrange(_GADGETS)}"}
        if self._chance(0.2):
            made["annotations"] = {"a": self._text(), "managedFields": self._text()}
        if self._chance(0.2):
            made["managedFields"] = self._managed_fields()
        if self._chance(0.03):
            made["finalizers"] = [f"example.com/f{at}" for at in range(self._random.randrange(3))]
        if self._chance(0.03):
            made["ownerReferences"] = self._list(
                lambda: {"apiVersion": "v1", "kind": "Pod", "name": "o@@", "uid": "u@@", "controller": False}
            )
        if self._chance(0.02):
            made[self._one_of(("unknown", "managedField", "uid"))] = self._free()
        return made

    def _managed_fields(self) -> Tree:
        return self._list(
            lambda: {
                "manager": "m@@",
                "operation": self._one_of(("Update", "Apply")),
                "apiVersion": "v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": {
                    self._one_of(("f:metadata", "f:spec", 'k:{"a":"]}"}')): self._one_of(
                        ({NEST: [self._one_of(_DEPTHS), '{"f:a":', "}"]}, {}, {"f:managedFields": {}})
                    )
                },
            }
        )

    def _selector(self) -> Tree:
        made: dict[str, Tree] = {}
        if self._chance(0.5):
            made["matchLabels"] = self._labels()
        if self._chance(0.5):
            made["matchExpressions"] = self._list(self._expression)
        return made

    def _expression(self) -> Tree:
        operator = self._one_of(("In", "NotIn", "Exists", "DoesNotExist"))
        if self._chance(0.02):
            operator = self._one_of(("Gt", "Near"))
        made = {"key": self._one_of(("app", "zone", "k@@")), "operator": operator}
        if operator in ("In", "NotIn", "Gt"):
            made["values"] = ["1"] if operator == "Gt" else self._list(lambda: "v@@") or ["a"]
        return made

    # --- objects ---------------------------------------------------------------------------------

    def _object(self, kind: str, name: str) -> Tree:
        group, fields = _MAKERS[kind]
        made = {"apiVersion": group, "kind": kind, "metadata": self._metadata(name, kind), **fields(self)}
        if self._chance(0.03):
            made[self._one_of(("unknown", "Spec", "data"))] = self._free()
        if self._chance(0.03) and isinstance(made.get("spec"), dict):
            made["spec"] = {**made["spec"], self._one_of(("unknown", "nodename")): self._free()}
        if self._chance(0.02):
            return {PAIRS: [*(list(pair) for pair in made.items()), ["metadata", made["metadata"]]]}
        return made

    def _container(self) -> Tree:
        made: dict[str, Tree] = {"name": "c@@", "image": self._one_of(("a", "registry/a:v1", "i@@"))}
        if self._chance(0.9):
            made["resources"] = {"requests": self._amounts("cpu", "memory", "ephemeral-storage")}
        if self._chance(0.1):
            made["resources"] = {what: {WIDGET: "1"} for what in ("requests", "limits")}
        if self._chance(0.1):
            made["ports"] = self._list(
                lambda: {"containerPort": 80, "hostPort": self._one_of((0, 80, 81)), "protocol": "TCP"}
            )
        if self._chance(0.1):
            made["env"] = self._list(lambda: {"name": "E@@", "value": self._text()})
        if self._chance(0.1):
            made["args"] = self._list(self._text)
        return made

    def pod(self) -> dict[str, Tree]:
        """Return the fields of one."""
        spec: dict[str, Tree] = {
            "containers": self._numbered(self._container, least=1),
            "terminationGracePeriodSeconds": 0,
        }
        if self._chance(0.3):
            spec["nodeName"] = f"node-{self._random.randrange(NODES + 1)}"
        if self._chance(0.15):
            spec["initContainers"] = self._numbered(
                lambda: {
                    **self._container(),
                    "name": "i@@",
                    **({"restartPolicy": "Always"} if self._chance(0.5) else {}),
                }
            )
        if self._chance(0.1):
            spec["resources"] = {"requests": {"cpu": "64", "memory": self._one_of(("1Ti", "8E"))}}
        for key, share, make in (
            ("tolerations", 0.1, lambda: self._list(self._toleration)),
            ("topologySpreadConstraints", 0.1, lambda: self._list(self._spread)),
            ("nodeSelector", 0.05, self._labels),
            ("affinity", 0.15, self._affinity),
            ("volumes", 0.1, lambda: self._list(self._volume)),
            ("schedulingGates", 0.05, lambda: self._list(lambda: {"name": "g@@"})),
            ("resourceClaims", 0.1, self._claims),
            ("schedulingGroup", 0.05, lambda: {"podGroupName": f"fuzzed-x{self._random.randrange(3)}"}),
            ("priorityClassName", 0.1, lambda: self._one_of((CLASS, "", "system-node-critical"))),
            ("overhead", 0.01, lambda: self._amounts("cpu", "memory")),
            ("hostAliases", 0.02, lambda: self._list(lambda: {"ip": "10.0.0.1", "hostnames": ["h@@"]})),
            ("activeDeadlineSeconds", 0.03, lambda: self._one_of(_NUMBERS)),
        ):
            if self._chance(share):
                spec[key] = make()
        if self._chance(0.02):
            spec[self._one_of(sorted(spec))] = self._one_of(_ODD)
        return {"spec": spec}

    def _numbered(self, make: Callable[[], Tree], least: int = 0) -> Tree:
        """Return items whose `@@` differ, which names need."""
        count = max(least, self._count())
        if count < 10 and self._chance(0.7):
            return [_numbered(make(), at) for at in range(count)]
        return {REPEAT: [make(), min(count, self._most_bytes // 100)]}

    def _toleration(self) -> Tree:
        operator = self._one_of(("Equal", "Exists", ""))
        made = {"key": self._one_of(("t", "k@@")), "operator": operator}
        return made | ({} if operator == "Exists" else {"value": self._one_of(("", "1", "v@@"))})

    def _spread(self) -> Tree:
        return {
            "maxSkew": self._one_of((1, 1, 2147483647)),
            "topologyKey": self._one_of(("zone", "t@@", "t@@", "t@@")),
            "whenUnsatisfiable": self._one_of(("DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": self._selector(),
        }

    def _term(self) -> Tree:
        return {
            "labelSelector": self._selector(),
            "topologyKey": self._one_of(("zone", "kubernetes.io/hostname", "t@@")),
            **({"namespaceSelector": self._selector()} if self._chance(0.3) else {}),
            **({"namespaces": self._list(lambda: "n@@")} if self._chance(0.2) else {}),
        }

    def _node_term(self) -> Tree:
        return {"matchExpressions": self._list(self._expression)}

    def _affinity(self) -> Tree:
        kind = self._one_of(("podAffinity", "podAntiAffinity", "nodeAffinity"))
        required = self._chance(0.5)
        if kind == "nodeAffinity":
            terms = self._list(self._node_term) or [self._node_term()]
            chosen = {"nodeSelectorTerms": terms} if required else self._list(self._node_preference)
        else:
            chosen = self._list(self._term if required else self._preference)
        return {
            kind: {f"{'required' if required else 'preferred'}DuringSchedulingIgnoredDuringExecution": chosen}
        }

    def _node_preference(self) -> Tree:
        return {"weight": 1, "preference": self._node_term()}

    def _preference(self) -> Tree:
        return {"weight": 100, "podAffinityTerm": self._term()}

    def _volume(self) -> Tree:
        source = self._one_of(
            (
                {"emptyDir": {}},
                {"persistentVolumeClaim": {"claimName": f"fuzzed-x{self._random.randrange(_MOST_NAMES)}"}},
                {"csi": {"driver": DRIVER}},
                {"configMap": {"name": "m@@"}},
                {"ephemeral": {"volumeClaimTemplate": {"spec": self._claim_spec()}}},
            )
        )
        return {"name": "v@@", **source}

    def _claims(self) -> Tree:
        name = f"fuzzed-x{self._random.randrange(_MOST_NAMES)}"
        return self._list(lambda: {"name": "c@@", "resourceClaimName": name})

    def node(self) -> dict[str, Tree]:
        """Return the fields of one."""
        spec: dict[str, Tree] = {}
        if self._chance(0.3):
            spec["taints"] = self._list(
                lambda: {"key": "k@@", "effect": self._one_of(("NoSchedule", "PreferNoSchedule"))}
            )
        if self._chance(0.1):
            spec["unschedulable"] = self._one_of((True, False, None))
        return {"spec": spec, "status": self._status("Node")}

    def _claim_spec(self) -> Tree:
        return {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": self._one_of(("1", "1Gi", self._quantity()))}},
            "storageClassName": self._one_of((CLASS, "", None)),
        }

    def pvc(self) -> dict[str, Tree]:
        """Return the fields of one."""
        spec = self._claim_spec()
        if self._chance(0.3):
            spec["selector"] = self._selector()
        if self._chance(0.3):
            spec["volumeName"] = f"fuzzed-x{self._random.randrange(_MOST_NAMES)}"
        return {"spec": spec}

    def pv(self) -> dict[str, Tree]:
        """Return the fields of one."""
        return {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "storageClassName": self._one_of((CLASS, "")),
                "csi": {"driver": DRIVER, "volumeHandle": "h"},
                "nodeAffinity": {
                    "required": {
                        "nodeSelectorTerms": self._list(
                            lambda: {"matchExpressions": self._list(self._expression)}
                        )
                        or [{"matchExpressions": [self._expression()]}]
                    }
                },
            }
        }

    def claim(self) -> dict[str, Tree]:
        """Return the fields of one."""
        devices: dict[str, Tree] = {"requests": [{"name": "r", "exactly": {"deviceClassName": CLASS}}]}
        if self._chance(0.8):
            devices["config"] = self._list(
                lambda: {"opaque": {"driver": DRIVER, "parameters": {"a": self._free()}}}
            )
        return {"spec": {"devices": devices}}

    def budget(self) -> dict[str, Tree]:
        """Return the fields of one."""
        least = self._one_of((0, 1, "50%", 2147483647, None)) if self._chance(0.9) else "101%"
        return {"spec": {"minAvailable": least, "selector": self._selector()}}

    def group(self) -> dict[str, Tree]:
        """Return the fields of one."""
        count = self._one_of((1, 1, 2, 2147483647)) if self._chance(0.95) else 0
        return {"spec": {"schedulingPolicy": {"gang": {"minCount": count}}}}

    def service(self) -> dict[str, Tree]:
        """Return the fields of one."""
        return {"spec": {"selector": self._labels(), "ports": [{"port": 80}]}}

    def namespace(self) -> dict[str, Tree]:
        """Return the fields of one."""
        return {}

    def gadget(self) -> dict[str, Tree]:
        """Return the fields of one: any JSON."""
        made = {key: self._free() for key in ("spec", "data", "managedFields") if self._chance(0.6)}
        if self._chance(0.2):
            made["lists"] = {REPEAT: [self._one_of(([], {}, [[]], {"managedFields": []})), self._count()]}
        return made

    def _status(self, kind: str) -> Tree:
        if kind == "Pod":
            return self._one_of(
                (
                    {"phase": self._one_of(("Running", "Succeeded", "Failed", "Odd"))},
                    {"conditions": self._list(lambda: {"type": "t@@", "status": "True"})},
                    {"message": self._text(), "nominatedNodeName": "node-0"},
                    self._one_of(_ODD_STATUS),
                )
            )
        if kind == "PersistentVolumeClaim":
            return {"phase": self._one_of(("Bound", "Lost")), "capacity": self._amounts("storage")}
        amounts = self._amounts("cpu", "memory", "ephemeral-storage", WIDGET)
        made: dict[str, Tree] = {"capacity": amounts, "allocatable": amounts}
        if isinstance(amounts, dict) and PAIRS not in amounts:
            made["allocatable"] = {**amounts, "pods": self._one_of(("110", "0", "5", "1e3"))}
        if self._chance(0.2):
            made["images"] = self._list(lambda: {"names": ["i@@"], "sizeBytes": self._one_of(_NUMBERS)})
        return made

    def _patch(self, kind: str) -> Tree:
        roll = self._random.random()
        if roll < 0.3:
            return {"metadata": {"labels": self._labels()}}
        if roll < 0.5:
            return {"metadata": {"annotations": {"a": self._text()}}}
        if roll < 0.65:
            return {"metadata": {"managedFields": self._one_of(([{}], [], None))}}
        if roll < 0.75:
            return {"metadata": {"finalizers": self._one_of((None, [], ["example.com/f"]))}}
        if kind == "Node":
            return {"spec": self.node()["spec"]}
        if kind == GADGET:
            return self.gadget()
        if kind == "Pod":
            return {"spec": self._one_of(({"schedulingGates": []}, {"activeDeadlineSeconds": 1}, {}))}
        return {"metadata": {"labels": {PAIRS: [["app", "a"], ["app", None]]}}}


def _numbered(tree: Tree, at: int) -> Tree:
    """Return the tree with the number of a copy for `@@`."""
    if isinstance(tree, str):
        return tree.replace("@@", str(at))
    if isinstance(tree, list):
        return [_numbered(item, at) for item in tree]
    if isinstance(tree, dict):
        return {key: value if key == REPEAT else _numbered(value, at) for key, value in tree.items()}
    return tree


_MAKERS: Final[dict[str, tuple[str, Callable[[Fuzz], dict[str, Tree]]]]] = {
    "Pod": ("v1", Fuzz.pod),
    "Node": ("v1", Fuzz.node),
    "ResourceClaim": ("resource.k8s.io/v1", Fuzz.claim),
    "PodDisruptionBudget": ("policy/v1", Fuzz.budget),
    "PersistentVolumeClaim": ("v1", Fuzz.pvc),
    "PersistentVolume": ("v1", Fuzz.pv),
    "PodGroup": ("scheduling.k8s.io/v1beta1", Fuzz.group),
    "Service": ("v1", Fuzz.service),
    "Namespace": ("v1", Fuzz.namespace),
    GADGET: (VERSION, Fuzz.gadget),
}
