"""The costs of sending, receiving and waking up, charged to a host's ranks in virtual time.

It is not a model of a processor: arithmetic is `compute`'s. `charging.c` charges in each process of
a guest; `library.py` compiles it. Three names to know: `charging_library`, `charging_environment`
(what a host is charged) and `measure_host` (what this machine takes).
"""
