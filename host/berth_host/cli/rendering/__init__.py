"""Reports -> text. Everything here returns strings; the commands print them."""
