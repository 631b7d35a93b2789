"""Readings of Kubernetes objects that several plugins share."""
