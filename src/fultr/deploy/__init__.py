"""A federation of real devices: Flower, keys, processes."""
