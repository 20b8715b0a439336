"""The command `fultr`."""
