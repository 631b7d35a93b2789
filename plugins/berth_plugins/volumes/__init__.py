"""The plugins that look at a pod's volumes, and their common readers."""
