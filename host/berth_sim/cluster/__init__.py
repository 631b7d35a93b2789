"""The embedded cluster: an in-memory API server, and its port."""
