"""One plugin instance as host and server use it: what it declares, and how each point is asked."""
