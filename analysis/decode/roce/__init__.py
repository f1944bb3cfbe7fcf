"""RoCEv2 captures: InfiniBand transport packets over UDP, queue pairs, their messages."""
