"""`berth bench versus`: run berth and kube-scheduler in turns on one real API server.

  command.py             the command and its options
  workloads.py           the pods, and their contenders. Start here
  contenders.py          a scheduler, its configuration, and the process beside it
  label_rank.py          the plugins: Filter and Score by two labels
  go_plugin.py           the plugins in Go, by the contract alone: builds them
  extender.py            the same work as an HTTP extender of kube-scheduler: builds and starts it
  yard.py                one turn: an API server, nodes, one scheduler, and the measurements
  figures.py             medians and ratios of turns; the shape of `-o json`
  real_servers.py        etcd and kube-apiserver as child processes
  scheduler_process.py   a scheduler as a child process
  processes.py           resource usage of processes
  api.py, objects.py     a small client, nodes and pods

The tests of `tests/cluster` start their servers and schedulers with the same modules.
"""
