"""Runs without a cluster: an embedded API server, manifests that fill it, and commands that work on files.

cluster/    the embedded API server behind the port, with admission, validation and controllers
manifests/  manifests on disk, read as objects and workloads
run/        a host on the embedded cluster, run until nothing changes any more
commands/   `berth simulate` and its like, which `berth` finds by entry points
"""
