"""What `fultr bench` measures."""
