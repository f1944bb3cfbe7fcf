/* Collectives of MPI beside each other and beside a message: each rank prints how many of its values
 * were wrong, rank 0 also how long an all-reduce of 16 KiB took in microseconds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define MANY (1 << 18)

int main(int argc, char **argv)
{
	static int message[MANY];
	float values[4096], sums[4096], product = 2;
	long most, me;
	double began_s, value = 0;
	int rank, size, wrong = 0, one = 1, sum = 0;
	MPI_Request request = MPI_REQUEST_NULL;
	MPI_Comm half;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int i = 0; i < 4096; i++)
		values[i] = rank + i;
	MPI_Barrier(MPI_COMM_WORLD);
	began_s = MPI_Wtime();
	MPI_Allreduce(values, sums, 4096, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("took %.2f us\n", (MPI_Wtime() - began_s) * 1e6);
	for (int i = 0; i < 4096; i++)
		wrong += sums[i] != size * i + size * (size - 1) / 2;

	/* Its receiver asks for the data, and rank 0 is in a collective by then. */
	if (rank == 0) {
		for (int i = 0; i < MANY; i++)
			message[i] = i;
		MPI_Isend(message, MANY, MPI_INT, 1, 7, MPI_COMM_WORLD, &request);
	} else if (rank == 1) {
		MPI_Recv(message, MANY, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		wrong += message[12345] != 12345;
	}
	me = rank;
	MPI_Allreduce(&me, &most, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
	wrong += most != size - 1;
	MPI_Wait(&request, MPI_STATUS_IGNORE);

	if (rank == size - 1)
		value = 2.5;
	MPI_Bcast(&value, 1, MPI_DOUBLE, size - 1, MPI_COMM_WORLD);
	wrong += value != 2.5;
	MPI_Reduce(&one, &sum, 1, MPI_INT, MPI_SUM, 1, MPI_COMM_WORLD);
	wrong += rank == 1 && sum != size;

	/* In the other order than in the world. */
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
	sum = rank;
	MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, half);
	for (int i = rank % 2; i < size; i += 2)
		sum -= i;
	wrong += sum != 0;

	/* No switch multiplies. */
	MPI_Allreduce(MPI_IN_PLACE, &product, 1, MPI_FLOAT, MPI_PROD, MPI_COMM_WORLD);
	wrong += product != (float)(1 << size);
	printf("rank %d has %d wrong\n", rank, wrong);
	MPI_Finalize();
	return wrong != 0;
}
