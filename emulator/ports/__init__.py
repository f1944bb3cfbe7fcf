"""Ports: how a port's rate, queue and delay are made of queue disciplines, and their counters."""
