"""`berth scheduler`: the flags, their effect on the configuration, and the errors for bad input."""
