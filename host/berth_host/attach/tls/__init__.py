"""Mutual TLS towards plugins on other machines. Imported late: it costs a tenth of a second at the start."""
