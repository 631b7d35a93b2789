"""The embedded cluster over HTTP, for hosts in other processes."""
