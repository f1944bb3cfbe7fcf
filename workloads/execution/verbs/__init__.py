"""Messages of programs over RDMA: queue pairs between ranks, credits and RDMA WRITEs."""
