"""All that runs on a user's device."""
