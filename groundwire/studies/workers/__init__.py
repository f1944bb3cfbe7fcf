"""What a worker does: each job in a process of its own."""
