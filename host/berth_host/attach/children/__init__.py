"""Plugin processes that the host launches."""
