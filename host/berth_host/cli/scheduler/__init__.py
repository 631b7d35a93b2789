"""`berth scheduler`: the flags, what they make of the configuration, and what bad input is told."""
