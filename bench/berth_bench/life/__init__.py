"""Lives of a whole host on a virtual clock, each drawn from a seed, so that a failure can be played again."""
