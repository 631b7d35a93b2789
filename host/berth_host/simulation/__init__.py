"""The run of a host on the embedded cluster, on a clock of its own: see `settle`."""
