"""`berth bench attach`: how long a child takes to answer, and what attaching many plugins costs."""
