"""Generators of the reference pages' made parts. `sections.SECTIONS` lists them all."""
