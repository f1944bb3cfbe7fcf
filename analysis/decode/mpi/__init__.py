"""The messages of OpenMPI's ranks over TCP."""
