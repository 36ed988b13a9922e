/* Allocates as fast as it can: two_alive LOOPS FIELD. Two objects are alive at any time; with FIELD 1, each is written to.
 *
 * The program of "How fast can the RPython GC allocate?" for malloc and free, and with -DBOEHM for the Boehm collector. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef BOEHM
#include <gc.h>
#define ALLOCATE GC_MALLOC
#define RELEASE(object) ((void)(object))
#else
#define ALLOCATE malloc
#define RELEASE free
#endif

/* A header and one field, as an object of the post has them. */
struct object {
    uint64_t header;
    uint64_t field;
};

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: two_alive LOOPS FIELD\n", stderr);
        return 2;
    }
    uint64_t loops = strtoull(argv[1], NULL, 10);
    int field = atoi(argv[2]);
#ifdef BOEHM
    GC_INIT();
#endif
    struct object *last = NULL, *before = NULL;
    for (uint64_t number = 0; number < loops; number++) {
        RELEASE(before);
        before = last;
        last = ALLOCATE(sizeof *last);
        if (last == NULL)
            return 1;
        last->header = 0x4c8;
        if (field)
            last->field = number;
        /* The compiler must not see that nobody reads the objects. */
        __asm__ volatile("" : "+r"(last), "+r"(before) : : "memory");
    }
    return 0;
}
