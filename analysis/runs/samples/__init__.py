"""Samples of the kernel in a run: queues of ports, rates of queue pairs."""
