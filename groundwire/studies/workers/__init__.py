"""The work of a worker: each job in a process of its own."""
