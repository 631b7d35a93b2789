"""The embedded cluster: an in-memory API server, its port, and the manifests that fill it."""
