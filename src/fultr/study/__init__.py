"""Simulation and experiments."""
