"""What a rank does while it runs: real torch.distributed collectives between modelled compute."""
