"""The process of `berth scheduler`: `process.py` first, then its signals, its event loop and its dump."""
