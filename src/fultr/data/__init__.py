"""Judged data sets: queries, documents, features and grades."""
