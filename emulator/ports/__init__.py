"""Ports: how a port's rate, queue and delay are made of queue disciplines, and their counters.

An arrangement is one way to make a port: the virtual kernel's own qdisc (`own_queues.py`), or stock
ones (`stock_queues.py`). Three names to know: `PortArrangement`, `QueueCounters` and `PortOptions`.
"""
