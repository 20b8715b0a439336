"""Rankers f_w: their scores, files and versions, how good they are, and training on grades."""
