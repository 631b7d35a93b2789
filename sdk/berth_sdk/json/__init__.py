"""The JSON of Kubernetes objects: of any depth, and with parts that stay bytes."""
