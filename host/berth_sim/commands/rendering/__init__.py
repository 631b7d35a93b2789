"""Reports and comparisons as text."""
