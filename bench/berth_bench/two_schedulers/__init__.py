"""`berth bench two-schedulers`: how far two schedulers over-commit the same nodes."""
