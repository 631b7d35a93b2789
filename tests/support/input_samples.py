"""Valid input of every kind that the commands read, as values: what the fuzz of the command line spoils."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from support.manifest_objects import node_object, pod_object, workload_object

SCHEDULER: Final[dict[str, Any]] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": False, "leaseDuration": "15s", "resourceLock": "leases"},
    "clientConnection": {"kubeconfig": "/k", "qps": 50, "burst": 100},
    "percentageOfNodesToScore": 0,
    "podInitialBackoffSeconds": 1,
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "plugins": {
                "multiPoint": {"enabled": [{"name": "Mine", "weight": 2}]},
                "score": {"disabled": [{"name": "ImageLocality"}]},
            },
            "pluginConfig": [
                {"name": "Mine", "args": {"a": 1}},
                {
                    "name": "NodeResourcesFit",
                    "args": {
                        "scoringStrategy": {
                            "type": "LeastAllocated",
                            "resources": [{"name": "cpu", "weight": 1}],
                        }
                    },
                },
                {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 1}},
                {
                    "name": "PodTopologySpread",
                    "args": {
                        "defaultingType": "List",
                        "defaultConstraints": [
                            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
                        ],
                    },
                },
                {
                    "name": "NodeAffinity",
                    "args": {
                        "addedAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [
                                    {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}
                                ]
                            }
                        }
                    },
                },
                {"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 600}},
                {"name": "DefaultPreemption", "args": {"minCandidateNodesPercentage": 10}},
            ],
        }
    ],
}
BERTH: Final[dict[str, Any]] = {
    "apiVersion": "config.berth.io/v1alpha1",
    "kind": "BerthConfiguration",
    "cycleBudget": "1s",
    "plugins": [
        {
            "name": "Mine",
            "inProcess": "fuzzed:Mine",
            "required": False,
            "scope": {
                "namespaceSelector": {"matchLabels": {"a": "b"}},
                "podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                "resources": ["example.com/gpu"],
            },
            "points": {"filter": {"deadline": "250ms", "policy": "Fail"}, "score": {"policy": "Neutral"}},
        }
    ],
}
SERVED: Final[dict[str, Any]] = {
    "apiVersion": "config.berth.io/v1alpha1",
    "kind": "BerthConfiguration",
    "socketFolder": "/run/berth",
    "handle": {
        "bindAddress": "0.0.0.0:10270",
        "advertiseAddress": "berth:10270",
        "tls": {"caFile": "/ca", "certFile": "/c", "keyFile": "/k"},
    },
    "plugins": [
        {
            "name": "Mine",
            "endpoint": "127.0.0.1:1",
            "tls": {"caFile": "/ca", "certFile": "/c", "keyFile": "/k", "serverName": "x"},
            "credentialFile": "/secret",
            "handle": {"permit": ["Other"]},
            "maxConcurrency": 4,
            "managedResources": [
                {"name": "example.com/gpu"},
                {"name": "example.com/gpu-memory", "ignoredByScheduler": True},
            ],
        },
        {"name": "Other", "command": ["berth-sdk", "serve", "x:X"]},
        {"name": "Third", "endpoint": "unix:///run/x.sock", "allowedUIDs": [0]},
        {"name": "Fourth", "endpoint": "127.0.0.1:2", "insecure": True},
    ],
}
OLDER: Final[dict[str, Any]] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1beta3",
    "kind": "KubeSchedulerConfiguration",
    "extenders": [
        {
            "urlPrefix": "https://x/y",
            "filterVerb": "filter",
            "weight": 1,
            "managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": True}],
            "tlsConfig": {"insecure": True},
        }
    ],
    "profiles": [{"schedulerName": "x", "pluginConfig": [{"name": "NodeAffinity", "args": {}}]}],
}
OLDEST: Final[dict[str, Any]] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1alpha1",
    "kind": "KubeSchedulerConfiguration",
    "schedulerName": "x",
    "hardPodAffinitySymmetricWeight": 1,
    "plugins": {"queueSort": {"enabled": [{"name": "PrioritySort"}]}},
    "leaderElection": {"leaderElect": True, "lockObjectName": "x"},
}
BY_POLICY: Final[dict[str, Any]] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1alpha1",
    "kind": "KubeSchedulerConfiguration",
    "algorithmSource": {"policy": {"file": {"path": "policy.json"}}},
}
POLICY: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Policy",
    "predicates": [
        {"name": "PodFitsResources"},
        {"name": "L", "argument": {"labelsPresence": {"labels": ["a"], "presence": True}}},
        {"name": "S", "argument": {"serviceAffinity": {"labels": ["a"]}}},
    ],
    "priorities": [
        {"name": "LeastRequestedPriority", "weight": 1},
        {
            "name": "R",
            "weight": 2,
            "argument": {"requestedToCapacityRatioArguments": {"shape": [{"utilization": 0, "score": 1}]}},
        },
    ],
    "extenders": [{"urlPrefix": "http://x", "httpTimeout": 1}],
}
CONFIGURATIONS: Final = (
    (SCHEDULER, BERTH),
    (SCHEDULER, SERVED),
    (OLDER,),
    (OLDEST,),
    (BY_POLICY,),
    (POLICY,),
    (BERTH,),
)
_LABELS: Final = {"matchLabels": {"app": "web"}}
_TERM: Final = {"labelSelector": _LABELS, "topologyKey": "zone", "namespaceSelector": {}}
_ZONE_TERM: Final = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
_NODE_TERM: Final = {
    "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}],
    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
}
POD: Final = pod_object(
    "everything",
    metadata={"labels": {"app": "web"}, "annotations": {"a": "b"}},
    priorityClassName="high",
    runtimeClassName="sandbox",
    nodeSelector={"zone": "a"},
    tolerations=[{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}],
    schedulingGates=[],
    topologySpreadConstraints=[
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": _LABELS}
    ],
    affinity={
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_NODE_TERM]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": _NODE_TERM}],
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [_TERM],
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": _TERM}],
        },
    },
    initContainers=[{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"memory": "1Mi"}}}],
    overhead={"cpu": "10m"},
)
_VOLUMES: Final = [
    {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
    {
        "name": "b",
        "ephemeral": {
            "volumeClaimTemplate": {
                "spec": {
                    "storageClassName": "fast",
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                }
            }
        },
    },
    {"name": "c", "gcePersistentDisk": {"pdName": "x"}},
]


def _object(api_version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


_HIGH: Final = _object("scheduling.k8s.io/v1", "PriorityClass", "high", value=1000, preemptionPolicy="Never")
_SANDBOX: Final = _object(
    "node.k8s.io/v1",
    "RuntimeClass",
    "sandbox",
    handler="x",
    overhead={"podFixed": {"cpu": "10m"}},
    scheduling={"nodeSelector": {"zone": "a"}, "tolerations": [{"operator": "Exists"}]},
)
MANIFESTS: Final = (
    (
        node_object("n1", labels={"zone": "a"}),
        node_object("n2", labels={"zone": "b"})
        | {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
        POD,
        _HIGH,
        _SANDBOX,
    ),
    (
        node_object("n1", labels={"zone": "a"}),
        pod_object("everything", volumes=_VOLUMES),
        _object(
            "v1",
            "PersistentVolumeClaim",
            "data",
            spec={
                "storageClassName": "fast",
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        ),
        _object(
            "storage.k8s.io/v1",
            "StorageClass",
            "fast",
            provisioner="x.csi",
            volumeBindingMode="WaitForFirstConsumer",
            allowedTopologies=[{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}],
        ),
        _object(
            "v1",
            "PersistentVolume",
            "v",
            spec={
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "csi": {"driver": "x.csi", "volumeHandle": "h"},
                "claimRef": {"name": "data", "namespace": "default"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [_ZONE_TERM]}},
            },
        ),
        _object(
            "storage.k8s.io/v1",
            "CSINode",
            "n1",
            spec={"drivers": [{"name": "x.csi", "nodeID": "n1", "allocatable": {"count": 4}}]},
        ),
        _object("storage.k8s.io/v1", "CSIDriver", "x.csi", spec={"storageCapacity": False}),
        _object(
            "storage.k8s.io/v1",
            "CSIStorageCapacity",
            "c",
            storageClassName="fast",
            capacity="5Gi",
            nodeTopology=_LABELS,
        ),
        _object(
            "storage.k8s.io/v1",
            "VolumeAttachment",
            "va",
            spec={"attacher": "x.csi", "nodeName": "n1", "source": {"persistentVolumeName": "v"}},
        ),
    ),
    (
        node_object("n1"),
        pod_object("everything", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}]),
        _object(
            "resource.k8s.io/v1", "DeviceClass", "gpu", spec={"selectors": [{"cel": {"expression": "true"}}]}
        ),
        _object(
            "resource.k8s.io/v1",
            "ResourceSlice",
            "s",
            spec={
                "driver": "x",
                "nodeName": "n1",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                "devices": [
                    {"name": "d", "attributes": {"a": {"int": 1}}, "capacity": {"m": {"value": "1Gi"}}}
                ],
            },
        ),
        _object(
            "resource.k8s.io/v1",
            "ResourceClaim",
            "gpu",
            spec={
                "devices": {
                    "requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}],
                    "constraints": [{"requests": ["r"], "matchAttribute": "x/a"}],
                }
            },
        ),
        _object("resource.k8s.io/v1", "ResourceClaimTemplate", "t", spec={"spec": {"devices": {}}}),
    ),
    (
        node_object("n1"),
        workload_object("Deployment", "d", replicas=3),
        workload_object(
            "StatefulSet",
            "s",
            replicas=2,
            serviceName="s",
            volumeClaimTemplates=[
                {
                    "metadata": {"name": "v"},
                    "spec": {
                        "storageClassName": "plain",
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                }
            ],
        ),
        workload_object("Job", "j", completions=2, parallelism=2),
        workload_object("ReplicaSet", "r", replicas=1),
        _object("policy/v1", "PodDisruptionBudget", "p", spec={"minAvailable": "50%", "selector": _LABELS}),
        _object(
            "storage.k8s.io/v1",
            "StorageClass",
            "plain",
            provisioner="x.csi",
            volumeBindingMode="WaitForFirstConsumer",
        ),
        _object("v1", "Namespace", "default"),
        _object("v1", "Service", "svc", spec={"selector": {"app": "web"}}),
        _object("v1", "LimitRange", "l", spec={"limits": [{"type": "Container", "default": {"cpu": "1"}}]}),
        _object("v1", "ResourceQuota", "q", spec={"hard": {"pods": "30", "requests.cpu": "20"}}),
        {"apiVersion": "v1", "kind": "List", "items": [pod_object("a"), pod_object("b", nodeName="n1")]},
    ),
)
KUBECONFIG: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "default"}}],
    "clusters": [
        {
            "name": "k",
            "cluster": {
                "server": "https://127.0.0.1:1",
                "insecure-skip-tls-verify": True,
                "tls-server-name": "x",
            },
        }
    ],
    "users": [
        {"name": "u", "user": {"token": "t", "as": "a", "as-groups": ["g"]}},
        {
            "name": "e",
            "user": {
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": "/bin/false",
                    "args": ["a"],
                    "env": [{"name": "A", "value": "b"}],
                    "interactiveMode": "Never",
                }
            },
        },
        {"name": "b", "user": {"username": "a", "password": "b", "client-key-data": "eA=="}},
    ],
}
CASES: Final[list[Any]] = [
    {
        "name": "Basic",
        "labels": ["x"],
        "defaultPodTemplatePath": "pod.yaml",
        "workloadTemplate": [
            {"opcode": "createNodes", "countParam": "$nodes"},
            {"opcode": "createPods", "count": 1, "collectMetrics": True},
            {"opcode": "churn", "mode": "create", "templatePaths": ["pod.yaml"], "intervalMilliseconds": 10},
            {"opcode": "barrier"},
        ],
        "workloads": [{"name": "1", "params": {"nodes": 1}, "threshold": 1}],
    }
]
TRACE: Final[Mapping[str, str]] = {
    "openb_node_list_all_node.csv": "sn,cpu_milli,memory_mib,gpu,model\n"
    "openb-node-0000,96000,786432,2,P100\n",
    "openb_pod_list_default.csv": (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
        "scheduled_time\nopenb-pod-0000,12000,16384,1,1000,,LS,Running,0,12537496,0\n"
    ),
}
MODULES: Final[tuple[str, ...]] = (
    "class Mine:\n    def filter(self, state, pod, node): return None\n",
    "class Mine:\n    def filter(self, state, pod, node): return 5\n"
    "    def score(self, state, pod, node): return 'x'\n",
    "class Mine:\n    def filter(self): pass\n",
    "class Mine:\n    def filter(self, state, pod, node): raise SystemExit(3)\n",
    "class Mine:\n    def filter(self, state, pod, node): raise GeneratorExit\n",
    "class Mine:\n    name = 5\n    def score(self, state, pod, node): return 2**70\n",
    "class Mine:\n    name = 'a\\x00b'\n    def score(self, state, pod, node): return 1\n",
    "class Mine:\n    needs = 5\n    def filter(self, state, pod, node): pass\n",
    "class Mine:\n    needs = [None]\n    depends_on = 'x'\n    def filter(self, state, pod, node): pass\n",
    "class Mine:\n    events = [1]\n    def filter(self, state, pod, node): pass\n",
    "class Mine:\n    deadlines = {1: 'x'}\n    max_concurrency = 'x'\n"
    "    def filter(self, state, pod, node): pass\n",
    "class Mine:\n    normalization = 'x'\n    def score(self, state, pod, node): return 1\n",
    "class Mine:\n    filter = 5\n    score = None\n",
    "class Mine:\n    async def filter(self, state, pod, node): pass\n",
    "class Mine:\n    def filter(self, state, pod, node): yield 1\n",
    "class Mine:\n    pass\n",
    "class Mine:\n    def __init__(self): pass\n    def filter(self, state, pod, node): pass\n",
    "class Mine:\n    def __init__(self, args, handle): raise BaseException('x')\n"
    "    def filter(self, state, pod, node): pass\n",
    "class Mine:\n    def __new__(cls, *a): return 5\n    def filter(self, state, pod, node): pass\n",
    "class Meta(type):\n    def __getattribute__(cls, name): raise RuntimeError('no ' + name)\n"
    "class Mine(metaclass=Meta):\n    def filter(self, state, pod, node): pass\n",
    "class Meta(type):\n    def __dir__(cls): raise ValueError('x')\n"
    "class Mine(metaclass=Meta):\n    def filter(self, state, pod, node): pass\n",
    "class Mine:\n    @property\n    def filter(self): raise ValueError('x')\n",
    "class Mine:\n    def less(self, a, b): return 'x'\n",
    "import enum\nclass Mine(enum.Enum):\n    A = 1\n    def filter(self, state, pod, node): pass\n",
    "import abc\nclass Mine(abc.ABC):\n    @abc.abstractmethod\n"
    "    def filter(self, state, pod, node): pass\n",
    "class Mine(int):\n    def filter(self, state, pod, node): pass\n",
    "class Mine(Exception):\n    def filter(self, state, pod, node): raise self\n",
    "class Loud(Exception):\n    def __str__(self): raise ValueError('no text')\n"
    "class Mine:\n    def filter(self, state, pod, node): raise Loud\n",
    "class Loud(Exception):\n    def __str__(self): raise ValueError('no text')\nraise Loud\n",
    "class Loud(Exception):\n    def __str__(self): return 5\nraise Loud\n",
    "raise SystemExit(0)\n",
    "raise BaseException('odd')\n",
    "raise GeneratorExit\n",
    "import asyncio\nraise asyncio.CancelledError\n",
    "import no_such_module_at_all\n",
    "def f(): return f()\nf()\n",
    "raise ExceptionGroup('g', [ValueError('x')])\n",
    "raise UnicodeDecodeError('utf-8', b'x', 0, 1, 'y')\n",
    "raise OSError(5, 'x')\n",
    "raise StopIteration\n",
    "raise MemoryError\n",
    "class Mine(\n",
    "\tx = 1\n  y\n",
    "# -*- coding: nothing -*-\n",
    "Mine = 5\n",
    "Mine = lambda: None\n",
    "def __getattr__(name): raise KeyError(name)\n",
    "class A:\n    @property\n    def __class__(self): raise ValueError\nMine = A()\n",
    "import sys\nsys.modules[__name__] = None\n",
    "import sys\nsys.stdout.close()\nclass Mine:\n    def filter(self, state, pod, node): pass\n",
    "import sys\nclass Mine:\n    def filter(self, state, pod, node): sys.stderr.write('\\udcff')\n",
    "class Mine:\n    def filter(self, state, pod, node): raise ValueError('\\udcff \\x00 \\x1b[31m')\n",
    "class Mine:\n    def filter(self, state, pod, node):\n        def f(): f()\n        f()\n",
    "\x00",
)
"""Modules of plugins, most of which cannot be used."""
