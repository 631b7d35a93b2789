"""One profile's plugins at every extension point, usable alone on a snapshot built by hand."""
