"""`mpirun` on a fabric: the hosts that it starts ranks on, and how it gets there."""
