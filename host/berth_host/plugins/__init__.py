"""Plugin names of the profiles -> classes (`registry`), and the clients that call them (`clients`)."""
