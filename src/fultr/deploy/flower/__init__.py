"""FedIPS on Flower: thin shells over the functions that also run in one process."""
