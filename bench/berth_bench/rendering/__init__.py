"""Results of `berth bench` as text."""
