"""`berth bench`: workloads on the embedded cluster, in real time, with figures.

command.py         the commands and their options
scheduler_perf/    scheduler_perf's own YAML -> `Workload`s
openb.py           the openb GPU trace -> manifests, and a `Workload`
own/               workloads that come with the package, in scheduler_perf's form
workload.py        the form that all of these are turned into: a name and ops. Start here
running.py         one workload on the host that `berth simulate` runs
ops/               the effect of each op on the cluster
measuring.py       the figures, and how they are defined
result.py          the figures of one workload: the shape of `-o json`
children.py        every workload in a fresh process
remote.py          `--remote`: plugins moved out of the host
versus/            beside kube-scheduler, on a real API server
attach/            how soon a child answers, and what many plugins cost to attach
faults/            what a plugin that fails costs the others
soak/              a host whose plugins fail in every way, and the account of its pods
"""
