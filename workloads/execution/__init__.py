"""A rank while it runs: real torch.distributed collectives between modelled compute.

It makes no network and no process; it needs torch. Three names to know: `run_rank`, `Communicator`
(a rank's collectives and messages) and `run_steps`.
"""
