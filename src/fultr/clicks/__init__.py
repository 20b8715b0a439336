"""What was displayed, examined and clicked; how examination is estimated from a click log."""
