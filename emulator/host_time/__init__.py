"""What sending, receiving and waking up cost a host, charged to its ranks in virtual time.

It is not a model of a processor: arithmetic is `compute`'s. `charging.c` is what charges, in each
process of a guest; `library.py` compiles it; `measure.py` measures this machine's own costs.
"""
