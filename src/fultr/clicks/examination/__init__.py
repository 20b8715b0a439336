"""Examination from the counts of a click log: one way a file."""
