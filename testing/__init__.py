"""Pieces that tests and benchmarks share: small fabrics whose timing is known, and flows over them.

`queue_lab` makes a fabric in the virtual kernel and sends packets at chosen nanoseconds.
`tcp_flows` sends TCP flows over it and reads their rates. Not part of the wheel.
"""
