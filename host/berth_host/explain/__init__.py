"""The findings of attempts, kept in a bounded ring; messages and `berth why` are views of it."""
