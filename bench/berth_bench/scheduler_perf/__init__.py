"""Read scheduler_perf's YAML as `Workload`s: cases.py the file, ops.py its ops, fields.py a single map."""
