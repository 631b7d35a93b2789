"""Reports -> text. The functions return strings, which the commands print."""
