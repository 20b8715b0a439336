"""What everything else builds on: errors, checks, random numbers, threads, atomic files."""
