"""What plugins said of pods that are the same to them, and when it stops to hold."""
