"""`berth bench`: run workloads on the embedded cluster, in real time, and measure them.

command.py         the commands and their options
workload.py        a workload as values: a name and ops. Start here
scheduler_perf/    read scheduler_perf's own YAML as `Workload`s
openb.py           make manifests and a `Workload` from the openb GPU trace
own/               workloads that come with the package, in scheduler_perf's form
templates.py       object templates of workloads
running.py         run one workload on the host of `berth simulate`
actions.py         carry out ops on the cluster; pods.py and devices.py help
measuring.py       the figures and their definitions
result.py          the figures of one workload: the shape of `-o json`
rendering/         results as text
children.py        run each workload in a fresh process
remote.py          `--remote`: serve plugins from processes of their own
versus/            compare with kube-scheduler, on a real API server
attach/            the start of a child, and the cost of attaching many plugins
faults/            the cost of a failing plugin
soak/              a host whose plugins fail in every way, and the account of its pods
"""
