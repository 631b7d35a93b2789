"""`berth bench ui`: how fluent the page is with many nodes and pods, in a real browser."""
