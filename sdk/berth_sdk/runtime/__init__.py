"""One plugin instance, for both the host and the server: its declarations, and the calls of each point."""
