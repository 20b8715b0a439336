"""LETOR text to arrays and back."""
