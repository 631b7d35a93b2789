"""One plugin instance, for the host and the server alike: its declarations, and how each point is called."""
