"""The JSON that the SDK reads and writes by itself."""
