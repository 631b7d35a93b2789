"""`berth bench`: workloads on the embedded cluster, in real time, with figures.

command.py         the commands and their options
scheduler_perf/    scheduler_perf's own YAML -> `Workload`s
openb.py           the openb GPU trace -> manifests, and a `Workload`
own/               workloads that come with the package, in scheduler_perf's form
workload.py        what all of these are turned into: a name and ops. Start here
running.py         one workload on the host that `berth simulate` runs
ops/               what each op does to the cluster
measuring.py       what is measured, and how the figures are defined
result.py          the figures of one workload: the shape of `-o json`
children.py        every workload in a fresh process
remote.py          `--remote`: plugins moved out of the host
versus/            beside kube-scheduler, on a real API server
"""
