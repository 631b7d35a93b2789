"""The plugins that check a pod's volumes, and their common readers."""
