"""Algorithm 1: one text for simulated clients and for devices."""
