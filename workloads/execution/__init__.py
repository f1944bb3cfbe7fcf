"""A rank while it runs: real torch.distributed collectives between modelled compute."""
