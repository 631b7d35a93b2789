"""The run of a host on the embedded cluster, with a simulated clock: see `settle`."""
