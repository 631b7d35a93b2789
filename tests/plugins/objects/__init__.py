"""What plugins read of objects."""
