"""The embedded cluster: an API server in memory, its port, and manifests as its content."""
