"""scheduler_perf's YAML -> `Workload`s: cases.py the file, ops.py its ops, fields.py how a map is read."""
