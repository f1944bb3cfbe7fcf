"""What runs inside a rank: real torch.distributed Gloo collectives between modelled compute."""
