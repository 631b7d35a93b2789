"""`berth bench attach`: how long a child takes to answer, and what many attached plugins cost."""
