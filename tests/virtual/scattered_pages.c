// Touches PAGES pages of memory that has one mapping of the host for each: every second page of an
// area, from the last to the first. Then checks all of them, three times.
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

int main(int count, char **arguments)
{
    long pages = count == 2 ? atol(arguments[1]) : 0;
    char *area = mmap(NULL, 2 * pages * PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (area == MAP_FAILED) return 1;
    for (long i = pages; i--;) *(long *) (area + 2 * i * PAGE) = i;
    for (int round = 0; round < 3; round++)
        for (long i = 0; i < pages; i++)
            if (*(long *) (area + 2 * i * PAGE) != i) return 2;
    puts("kept");
    return 0;
}
