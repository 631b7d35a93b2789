"""`berth bench faults`: the cost of a plugin that is dead, hangs or is slow."""
