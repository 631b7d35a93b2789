"""`berth bench versus`: berth and kube-scheduler in turns on one real API server.

command.py             the command and its options
workloads.py           which pods, and which contenders they are for. Start here
contenders.py          a scheduler, its configuration, and what works beside it
label_rank.py          the plugin: Filter and Score by two labels
extender.py            the same work as an HTTP extender of kube-scheduler: builds it, starts it
yard.py                one turn: an API server, nodes, one scheduler, and what was measured
figures.py             turns -> medians and ratios; the shape of `-o json`
real_servers.py        etcd and kube-apiserver as child processes
scheduler_process.py   a scheduler as a child process
processes.py           what a process has used
api.py, objects.py     a small client, nodes and pods

The tests of `tests/cluster` start their servers and schedulers with the same modules.
"""
