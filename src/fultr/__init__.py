"""Federated unbiased learning to rank."""
