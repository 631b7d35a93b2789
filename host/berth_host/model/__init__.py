"""Small values that several parts of the host share."""
