/* The times that osu_latency and osu_bw of the OSU micro-benchmarks measure, for a few sizes. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define TURNS 100
#define WINDOW 64
int main(int argc, char **argv)
{
	static char buffer[1 << 20], answer[4];
	int rank, size;
	MPI_Request requests[WINDOW];
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (size = 8; size <= 1 << 20; size *= 8192) { /* 8 and 64 KiB */
		double begin = 0;
		for (int i = -10; i < TURNS; i++) {
			if (i == 0)
				begin = MPI_Wtime();
			if (rank == 0) {
				MPI_Send(buffer, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
				MPI_Recv(buffer, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			} else if (rank == 1) {
				MPI_Recv(buffer, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
				MPI_Send(buffer, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
			}
		}
		if (rank == 0)
			printf("latency %d %.3f us\n", size, (MPI_Wtime() - begin) * 1e6 / TURNS / 2);
	}
	size = 1 << 20;
	for (int i = 0; i < 2; i++) {
		double begin = MPI_Wtime();
		if (rank == 0) {
			for (int m = 0; m < WINDOW; m++)
				MPI_Isend(buffer, size, MPI_CHAR, 1, 2, MPI_COMM_WORLD, requests + m);
			MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
			MPI_Recv(answer, 4, MPI_CHAR, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			if (i == 1)
				printf("bandwidth %d %.0f MB/s\n", size, WINDOW * size / 1e6 / (MPI_Wtime() - begin));
		} else if (rank == 1) {
			for (int m = 0; m < WINDOW; m++)
				MPI_Irecv(buffer, size, MPI_CHAR, 0, 2, MPI_COMM_WORLD, requests + m);
			MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
			MPI_Send(answer, 4, MPI_CHAR, 0, 3, MPI_COMM_WORLD);
		}
	}
	int one = 1, sum;
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	char name[MPI_MAX_PROCESSOR_NAME]; int len;
	MPI_Get_processor_name(name, &len);
	printf("rank %d of %d on %s\n", rank, sum, name);
	MPI_Finalize();
	return 0;
}
