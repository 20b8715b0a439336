"""Private search over one's own files: an index, a page on the loopback interface, and a log that training reads."""
