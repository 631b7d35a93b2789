"""Mutual TLS to plugins on other machines. Imported late, because the import takes 0.1 s."""
