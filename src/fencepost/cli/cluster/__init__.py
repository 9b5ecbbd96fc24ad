"""What ``fencepost cluster`` shows, and the process that it leaves behind."""
