"""One plugin instance as host and server use it: its declarations, and how each point is asked."""
