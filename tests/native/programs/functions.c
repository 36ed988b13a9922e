/* Calls each function that gives memory, from a function of its own, and keeps what it gets. Prints their names, the bytes
   that they ask for, and those that stay. */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { CALLS = 2000, SIZE = 40960, MAPPINGS = 200, SMALL = 16384, LARGE = 1024000 };

static void *volatile kept;

#define EACH(name, count, call) \
    static __attribute__((noinline)) void name(void) \
    { \
        for (int call_number = 0; call_number < count; call_number++) { \
            void *block = call; \
            kept = block; \
        } \
    }

#define MAP(size) mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
/* A mapping counts with its touched bytes. */
#define TOUCHED(call) memset(call, 1, LARGE)

EACH(use_malloc, CALLS, malloc(SIZE))
EACH(use_calloc, CALLS, calloc(5, SIZE / 5))
EACH(use_realloc, CALLS, realloc(NULL, SIZE))
EACH(use_reallocarray, CALLS, reallocarray(NULL, 5, SIZE / 5))
EACH(use_posix_memalign, CALLS, posix_memalign((void **)&kept, 64, SIZE) ? NULL : kept)
EACH(use_aligned_alloc, CALLS, aligned_alloc(64, SIZE))
EACH(use_memalign, CALLS, memalign(64, SIZE))
EACH(use_valloc, CALLS, valloc(SIZE))
EACH(use_pvalloc, CALLS, pvalloc(SIZE))
EACH(use_mmap, MAPPINGS, TOUCHED(MAP(LARGE)))
/* A small mapping is rarely sampled. It counts when it is large. */
EACH(use_mremap, MAPPINGS, TOUCHED(mremap(MAP(SMALL), SMALL, LARGE, MREMAP_MAYMOVE)))

int main(void)
{
    static const struct {
        const char *name;
        void (*run)(void);
        long bytes, more;
    } functions[] = {
#define ROW(name) {#name, name, (long)CALLS * SIZE, 0}
        ROW(use_malloc), ROW(use_calloc), ROW(use_realloc), ROW(use_reallocarray), ROW(use_posix_memalign),
        ROW(use_aligned_alloc), ROW(use_memalign), ROW(use_valloc), ROW(use_pvalloc),
        {"use_mmap", use_mmap, (long)MAPPINGS * LARGE, 0},
        {"use_mremap", use_mremap, (long)MAPPINGS * LARGE, (long)MAPPINGS * SMALL},
    };
    for (size_t at = 0; at < sizeof functions / sizeof *functions; at++) {
        functions[at].run();
        printf("%s %ld %ld\n", functions[at].name, functions[at].bytes + functions[at].more, functions[at].bytes);
    }
    return 0;
}
