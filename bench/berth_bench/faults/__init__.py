"""`berth bench faults`: what a plugin that is dead, hangs or is slow costs, against a host without it."""
