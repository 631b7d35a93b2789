"""The measured load of nodes: where it is read, and what the load-aware plugins share."""
