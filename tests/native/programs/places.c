/* Large requests, at random: prints where each block lies in the heap of the C library, and which are mappings of their own.
   With the argument "shared", calloc of memory a part of which was a shared mapping of a file: prints how many bytes are not
   zero. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCKS = 64, CALLS = 20000, LEAST = 1048 };

static uint64_t state = 7;

static uint64_t random_number(void)
{
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static size_t random_size(void)
{
    return LEAST + (random_number() & (((uint64_t)1 << (10 + random_number() % 12)) - 1));
}

static void places(void)
{
    static char *blocks[BLOCKS];
    intptr_t base = (intptr_t)malloc(LEAST);
    for (int call = 0; call < CALLS; call++) {
        char **block = &blocks[random_number() % BLOCKS];
        size_t size = random_size();
        if (*block && random_number() % 3) {
            free(*block);
            *block = NULL;
            continue;
        }
        void *fresh = NULL;
        if (*block)
            fresh = realloc(*block, size);
        else
            switch (random_number() % 6) {
            case 0: fresh = calloc(size / 8 + 1, 8); break;
            case 1: if (posix_memalign(&fresh, 64, size)) abort(); break;
            case 2: fresh = realloc(NULL, size); break;
            default: fresh = malloc(size);
            }
        *block = fresh;
        (*block)[0] = (*block)[size - 1] = 1;
        intptr_t place = (intptr_t)fresh - base;
        if (place > -(1 << 28) && place < 1 << 28)
            printf("%d %td\n", call, place);
        else
            printf("%d mapped\n", call);
    }
}

static void shared(void)
{
    enum { SIZE = 1 << 20, PAGE = 4096 };
    /* Blocks of this size are in the heap, so their memory is used again as it is. */
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
    char *block = malloc(SIZE), *guard = malloc(2000);
    char *inside = (char *)(((intptr_t)block + SIZE / 4) & -PAGE);
    int file = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0600);
    char *contents = malloc(SIZE / 2);
    memset(contents, 0xa5, SIZE / 2);
    if (write(file, contents, SIZE / 2) != SIZE / 2 || fsync(file))
        abort();
    /* Pages of the file that are not in memory say nothing about their contents. */
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    if (mmap(inside, SIZE / 2, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != inside)
        abort();
    free(block);
    unsigned char *zeroed = calloc(SIZE, 1);
    size_t wrong = 0;
    for (size_t at = 0; at < SIZE; at++) wrong += zeroed[at] != 0;
    printf("%d %zu\n", (char *)zeroed == block, wrong);
    free(guard);
}

int main(int count, char **words)
{
    if (count > 1 && !strcmp(words[1], "shared"))
        shared();
    else
        places();
    return 0;
}
