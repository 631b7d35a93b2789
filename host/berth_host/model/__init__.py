"""Small types and functions that several parts of the host share."""
