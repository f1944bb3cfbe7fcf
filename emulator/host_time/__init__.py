"""The costs of sending, receiving and waking up, charged to a host's ranks in virtual time.

It is not a model of a processor: arithmetic is `compute`'s. `charging.c` charges in each process of
a guest; `library.py` compiles it.
"""
