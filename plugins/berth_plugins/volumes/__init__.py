"""The plugins that look at a pod's volumes, and what they read alike."""
