"""The parts of the reference pages that are made from the code. `sections.SECTIONS` lists them all."""
