"""Messages of MPI, as they were seen."""
