"""What OpenMPI's ranks send each other over TCP."""
