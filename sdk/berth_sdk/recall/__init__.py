"""Answers that are kept for pods that are the same to a plugin, and which of their slots still hold."""
