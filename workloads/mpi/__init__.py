"""Collectives of OpenMPI's ranks that the switches do.

It is no MPI: messages, and collectives that no switch is asked for, stay OpenMPI's own.
`collectives.c` is loaded into each process of `mpirun` and takes over `MPI_Allreduce`,
`MPI_Reduce`, `MPI_Bcast` and `MPI_Barrier`; `rank_end.py` runs beside each rank, in its host, and
has torch's backend groundwire do them. Three names to know: `Question` (what a process asks),
`Data` and `Groups`.
"""
