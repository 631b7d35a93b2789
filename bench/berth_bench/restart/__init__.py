"""`berth bench restart`: what a scheduler costs from its start to its first binding, on a cluster with many
running pods, and how soon a standby binds after the leader was killed.

  command.py        the command and its options. Start here
  running_pods.py   a running pod as an API server keeps it, and its copies, written into etcd
  ground.py         one turn: a scheduler's start, or the kills of leaders, and the measurements
  figures.py        medians and ratios; the shape of `-o json`

The servers and the processes of schedulers are those of `versus`.
"""
