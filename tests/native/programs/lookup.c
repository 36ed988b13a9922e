/* A library whose `dlsym` allocates, as the C library's did before version 2.34. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

void *dlsym(void *handle, const char *name)
{
    static void *(*next)(void *, const char *);
    /* Its first use, and a second one, when the thread has allocated before. */
    char *volatile blocks[] = {calloc(1, 32), malloc(32)};
    for (int at = 0; at < 2; at++)
        if (!blocks[at]) abort();
    for (int place = 0; place < 32; place++)
        if (blocks[0][place]) abort();
    memset(blocks[1], 7, 32);
    blocks[1] = realloc(blocks[1], 5000);
    if (!blocks[1] || blocks[1][31] != 7) abort();
    free(blocks[0]);
    free(blocks[1]);
    if (!next) next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return next(handle, name);
}

/* Before the initialiser of a library that was preloaded earlier: the first request of the process. */
__attribute__((constructor)) static void begin(void)
{
    free(malloc(100));
}
