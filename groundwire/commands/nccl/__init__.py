"""`groundwire nccl` and `groundwire nccl-tests`: NCCL's choices, and its benchmark's table."""
