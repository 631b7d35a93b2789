"""What several plugins read of Kubernetes objects."""
