"""What is known of MPI's collectives."""
