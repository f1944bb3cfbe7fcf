"""What the kernel sampled in a run: queues of ports, rates of queue pairs."""
