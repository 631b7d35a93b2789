"""What an attempt found out, kept in a bounded ring; messages and `berth why` are views of it."""
