"""The chart, and the plain manifests that are made from it."""
