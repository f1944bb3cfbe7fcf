/* Collectives of OpenMPI's ranks that switches do (docs/in-network-programs.md).
 *
 * It is loaded before OpenMPI (LD_PRELOAD) and takes the place of MPI_Allreduce, MPI_Reduce,
 * MPI_Bcast and MPI_Barrier, as MPI's profiling interface allows (MPI 3.1, section 14.2): OpenMPI's
 * own are PMPI_Allreduce and so on. A process of Python beside the rank, rank_end.py, does the
 * collective; data go through memory of both, words through pipes, neither of which takes virtual
 * time.
 *
 *   rank:   KIND BYTES TYPE OPERATION ROOT MEMBERS\n     ranks of MPI_COMM_WORLD, members in order
 *   beside: ok\n
 *
 * OpenMPI's handles are addresses of its own objects (ompi/include/mpi.h.in), so that nothing of it
 * is needed to compile this file. A call that the switches cannot do goes on to OpenMPI: types and
 * operations that are not in the tables below, and communicators between groups.
 *
 *   GROUNDWIRE_MPI        what rank_end.py is started by: PYTHON and its arguments, in lines
 *   GROUNDWIRE_MPI_KINDS  the kinds that switches do, with a comma between them
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

typedef void *Handle;

/* Constants of OpenMPI's mpi.h */
#define IN_PLACE ((void *)1)
#define ANY (-1)
#define UNDEFINED (-32766)
#define SUCCESS 0
#define NAMED 0 /* MPI_COMBINER_NAMED: a type that is MPI's own */

#define FIRST_DESCRIPTOR 64 /* above those that the program counts on */

static struct {
	int commands, answers, memory;
	pid_t beside;
	char *data;
	size_t room;
} end = {-1, -1, -1, 0, NULL, 0};

/* OpenMPI's library, which Python loads for itself alone. */
static void *ompi(const char *name)
{
	static void *library;
	void *found = dlsym(RTLD_DEFAULT, name);

	if (found)
		return found;
	if (!library)
		library = dlopen("libmpi.so.40", RTLD_LAZY | RTLD_NOLOAD);
	return library ? dlsym(library, name) : NULL;
}

static void fail(const char *words)
{
	int (*abort_all)(Handle, int) = ompi("PMPI_Abort");

	fprintf(stderr, "groundwire: %s\n", words);
	if (abort_all)
		abort_all(ompi("ompi_mpi_comm_world"), 1);
	_exit(1);
}

/* The call of this name, OpenMPI's own. */
#define OWN(result, name, ...) ((result(*)(__VA_ARGS__))own(#name))

static void *own(const char *name)
{
	void *found = ompi(name);

	if (!found)
		fail("switches do collectives of OpenMPI: found another MPI, or none");
	return found;
}

static int does(const char *kind)
{
	const char *kinds = getenv("GROUNDWIRE_MPI_KINDS");
	size_t length = strlen(kind);

	for (; kinds && *kinds; kinds += strcspn(kinds, ","), kinds += *kinds == ',')
		if (!strncmp(kinds, kind, length) && (!kinds[length] || kinds[length] == ','))
			return end.beside != 0;
	return 0;
}

/* -- the process beside this one --------------------------------------------------------------- */

/* Those libraries of LD_PRELOAD that are not this one. */
static char *others_of(const char *preloaded)
{
	Dl_info own_file;
	char *others = calloc(1, strlen(preloaded) + sizeof "LD_PRELOAD="), *copy, *next;

	copy = strdup(preloaded);
	if (!others || !copy || !dladdr(&end, &own_file))
		fail("no memory");
	strcpy(others, "LD_PRELOAD=");
	while ((next = strsep(&copy, ": ")))
		if (*next && strcmp(next, own_file.dli_fname)) {
			if (others[strlen(others) - 1] != '=')
				strcat(others, ":");
			strcat(others, next);
		}
	return others;
}

static char **environment_of(int rank)
{
	const char *preloaded = getenv("LD_PRELOAD");
	static char number[32];
	size_t count = 0, kept = 0;
	char **found;

	while (environ[count])
		count++;
	found = calloc(count + 3, sizeof *found);
	if (!found)
		fail("no memory");
	for (size_t i = 0; i < count; i++)
		if (strncmp(environ[i], "LD_PRELOAD=", 11) && strncmp(environ[i], "RANK=", 5))
			found[kept++] = environ[i];
	snprintf(number, sizeof number, "RANK=%d", rank);
	found[kept++] = number;
	if (preloaded)
		found[kept++] = others_of(preloaded);
	return found;
}

static int high(int descriptor)
{
	int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR);

	close(descriptor);
	return moved;
}

static void progress(void)
{
	int flag;

	/* Lets OpenMPI send and receive what others wait for. */
	OWN(int, PMPI_Iprobe, int, int, Handle, int *, void *)
	(ANY, ANY, ompi("ompi_mpi_comm_self"), &flag, NULL);
}

static void await(const char *what)
{
	char answer[4];
	size_t come = 0;

	while (come < 3) {
		struct pollfd asked = {end.answers, POLLIN, 0};

		if (poll(&asked, 1, 0) > 0) {
			ssize_t some = read(end.answers, answer + come, 3 - come);

			if (some <= 0 && errno != EINTR)
				break;
			come += some > 0 ? some : 0;
		} else {
			progress();
		}
	}
	if (come < 3 || memcmp(answer, "ok\n", 3)) {
		char words[256];

		snprintf(words, sizeof words, "%s by switches failed, as said above", what);
		fail(words);
	}
}

static void begin(void)
{
	const char *command = getenv("GROUNDWIRE_MPI");
	int asked[2], answered[2], rank, problem;
	posix_spawn_file_actions_t files;
	char *words[16] = {0}, *copy, *next;
	size_t count = 0;

	if (!command)
		return;
	OWN(int, PMPI_Comm_rank, Handle, int *)(own("ompi_mpi_comm_world"), &rank);
	end.memory = memfd_create("groundwire", MFD_CLOEXEC);
	if (pipe(asked) || pipe(answered) || end.memory < 0)
		fail(strerror(errno));
	end.memory = high(end.memory);
	end.commands = high(asked[1]);
	end.answers = high(answered[0]);
	asked[0] = high(asked[0]);
	answered[1] = high(answered[1]);
	copy = strdup(command);
	while (copy && (next = strsep(&copy, "\n")) && count < 15)
		words[count++] = next;
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, asked[0], 0);
	posix_spawn_file_actions_adddup2(&files, answered[1], 3);
	posix_spawn_file_actions_adddup2(&files, end.memory, 4);
	posix_spawn_file_actions_addclosefrom_np(&files, 5);
	problem = posix_spawn(&end.beside, words[0], &files, NULL, words, environment_of(rank));
	posix_spawn_file_actions_destroy(&files);
	close(asked[0]);
	close(answered[1]);
	if (problem)
		fail(strerror(problem));
	await("MPI_Init");
}

static void leave(void)
{
	if (!end.beside)
		return;
	close(end.commands);
	waitpid(end.beside, NULL, 0);
	end.beside = 0;
}

/* Memory of both processes for so many bytes. */
static char *room_for(size_t bytes)
{
	size_t room = (bytes + 4095) & ~(size_t)4095;

	if (room > end.room) {
		if (end.data)
			munmap(end.data, end.room);
		if (ftruncate(end.memory, (off_t)room))
			fail(strerror(errno));
		end.data = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, end.memory, 0);
		if (end.data == MAP_FAILED)
			fail(strerror(errno));
		end.room = room;
	}
	return end.data;
}

/* -- the words for a call ---------------------------------------------------------------------- */

/* `of_signs`: only what has the same bits for numbers with and without a sign. */
static const struct {
	const char *symbol, *name;
	int of_signs;
} TYPES[] = {
	{"ompi_mpi_float", "float32", 1},
	{"ompi_mpi_double", "float64", 1},
	{"ompi_mpi_short", "int16", 1},
	{"ompi_mpi_int16_t", "int16", 1},
	{"ompi_mpi_int", "int32", 1},
	{"ompi_mpi_int32_t", "int32", 1},
	{"ompi_mpi_long", "int64", 1},
	{"ompi_mpi_long_long_int", "int64", 1},
	{"ompi_mpi_int64_t", "int64", 1},
	{"ompi_mpi_unsigned_short", "int16", 0},
	{"ompi_mpi_uint16_t", "int16", 0},
	{"ompi_mpi_unsigned", "int32", 0},
	{"ompi_mpi_uint32_t", "int32", 0},
	{"ompi_mpi_unsigned_long", "int64", 0},
	{"ompi_mpi_unsigned_long_long", "int64", 0},
	{"ompi_mpi_uint64_t", "int64", 0},
};

static const struct {
	const char *symbol, *name;
	int of_signs;
} OPERATIONS[] = {
	{"ompi_mpi_op_sum", "sum", 0},   {"ompi_mpi_op_max", "max", 1},
	{"ompi_mpi_op_min", "min", 1},   {"ompi_mpi_op_band", "band", 0},
	{"ompi_mpi_op_bor", "bor", 0},   {"ompi_mpi_op_bxor", "bxor", 0},
};

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

static int known(Handle type, Handle operation, const char **type_name, const char **name)
{
	for (size_t i = 0; i < COUNT(TYPES); i++) {
		if (type != ompi(TYPES[i].symbol))
			continue;
		for (size_t j = 0; j < COUNT(OPERATIONS); j++) {
			if (operation != ompi(OPERATIONS[j].symbol))
				continue;
			*type_name = TYPES[i].name;
			*name = OPERATIONS[j].name;
			return TYPES[i].of_signs || !OPERATIONS[j].of_signs;
		}
	}
	return 0;
}

/* The members of a communicator as ranks of MPI_COMM_WORLD, in words, and that of its `root`; NULL
 * where it has one member, two groups, or processes of another world. */
static char *members_of(Handle communicator, int *root)
{
	Handle group, world;
	int between, size;
	int *ranks;
	char *words, *at;

	OWN(int, PMPI_Comm_test_inter, Handle, int *)(communicator, &between);
	if (between)
		return NULL;
	OWN(int, PMPI_Comm_group, Handle, Handle *)(communicator, &group);
	OWN(int, PMPI_Comm_group, Handle, Handle *)(own("ompi_mpi_comm_world"), &world);
	OWN(int, PMPI_Group_size, Handle, int *)(group, &size);
	ranks = calloc(2 * (size_t)size + 1, sizeof *ranks);
	words = at = calloc((size_t)size + 1, 12);
	if (!ranks || !words)
		fail("no memory");
	for (int i = 0; i < size; i++)
		ranks[i] = i;
	OWN(int, PMPI_Group_translate_ranks, Handle, int, const int *, Handle, int *)
	(group, size, ranks, world, ranks + size);
	for (int i = 0; i < size; i++) {
		if (ranks[size + i] == UNDEFINED || size < 2) {
			free(words);
			words = NULL;
			break;
		}
		at += sprintf(at, i ? ",%d" : "%d", ranks[size + i]);
	}
	*root = *root < size ? ranks[size + *root] : 0;
	free(ranks);
	OWN(int, PMPI_Group_free, Handle *)(&group);
	OWN(int, PMPI_Group_free, Handle *)(&world);
	return words;
}

static size_t bytes_of(Handle type, int count)
{
	int size;

	OWN(int, PMPI_Type_size, Handle, int *)(type, &size);
	return (size_t)size * (size_t)count;
}

static void ask(const char *call, const char *kind, size_t bytes, const char *type,
		const char *operation, int root, char *members)
{
	if (dprintf(end.commands, "%s %zu %s %s %d %s\n", kind, bytes, type, operation, root,
		    members) < 0)
		fail(strerror(errno));
	free(members);
	await(call);
}

/* -- MPI's calls ------------------------------------------------------------------------------- */

int MPI_Init(int *argc, char ***argv)
{
	int code = OWN(int, PMPI_Init, int *, char ***)(argc, argv);

	if (code == SUCCESS)
		begin();
	return code;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	int code = OWN(int, PMPI_Init_thread, int *, char ***, int, int *)(argc, argv, required,
									    provided);

	if (code == SUCCESS)
		begin();
	return code;
}

int MPI_Finalize(void)
{
	leave();
	return OWN(int, PMPI_Finalize, void)();
}

int MPI_Allreduce(const void *source, void *target, int count, Handle type, Handle operation,
		  Handle communicator)
{
	const char *type_name, *name;
	char *members = NULL, *data;
	int root = 0;
	size_t bytes;

	if (does("all_reduce") && count > 0 && known(type, operation, &type_name, &name))
		members = members_of(communicator, &root);
	if (!members)
		return OWN(int, PMPI_Allreduce, const void *, void *, int, Handle, Handle, Handle)(
			source, target, count, type, operation, communicator);
	bytes = bytes_of(type, count);
	data = room_for(bytes);
	memcpy(data, source == IN_PLACE ? target : source, bytes);
	ask("MPI_Allreduce", "all_reduce", bytes, type_name, name, root, members);
	memcpy(target, data, bytes);
	return SUCCESS;
}

int MPI_Reduce(const void *source, void *target, int count, Handle type, Handle operation, int root,
	       Handle communicator)
{
	const char *type_name, *name;
	char *members = NULL, *data;
	int at = root, me;
	size_t bytes;

	if (does("reduce") && count > 0 && known(type, operation, &type_name, &name))
		members = members_of(communicator, &at);
	if (!members)
		return OWN(int, PMPI_Reduce, const void *, void *, int, Handle, Handle, int, Handle)(
			source, target, count, type, operation, root, communicator);
	bytes = bytes_of(type, count);
	data = room_for(bytes);
	memcpy(data, source == IN_PLACE ? target : source, bytes);
	ask("MPI_Reduce", "reduce", bytes, type_name, name, at, members);
	OWN(int, PMPI_Comm_rank, Handle, int *)(communicator, &me);
	if (me == root)
		memcpy(target, data, bytes);
	return SUCCESS;
}

int MPI_Bcast(void *buffer, int count, Handle type, int root, Handle communicator)
{
	int integers, addresses, types, combiner, at = root, me;
	char *members = NULL, *data;
	size_t bytes;

	if (does("broadcast") && count > 0) {
		OWN(int, PMPI_Type_get_envelope, Handle, int *, int *, int *, int *)
		(type, &integers, &addresses, &types, &combiner);
		if (combiner == NAMED)
			members = members_of(communicator, &at);
	}
	if (!members)
		return OWN(int, PMPI_Bcast, void *, int, Handle, int, Handle)(buffer, count, type,
									       root, communicator);
	bytes = bytes_of(type, count);
	data = room_for(bytes);
	OWN(int, PMPI_Comm_rank, Handle, int *)(communicator, &me);
	if (me == root)
		memcpy(data, buffer, bytes);
	ask("MPI_Bcast", "broadcast", bytes, "uint8", "sum", at, members);
	if (me != root)
		memcpy(buffer, data, bytes);
	return SUCCESS;
}

int MPI_Barrier(Handle communicator)
{
	char *members = NULL;
	int root = 0;

	if (does("all_reduce"))
		members = members_of(communicator, &root);
	if (!members)
		return OWN(int, PMPI_Barrier, Handle)(communicator);
	ask("MPI_Barrier", "barrier", 0, "int64", "sum", root, members);
	return SUCCESS;
}
