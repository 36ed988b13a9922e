/* A library with an allocator of its own, which it calls through three exported functions, as Apache Arrow does. Each copy of the
 * library has blocks of its own, and ends the program if it gets one of another. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ARENA = 1 << 28, HEADER = 64 };

static char *arena, *next;

struct block {
    struct block *owner;
    size_t size;
};

static struct block *header(void *block) { return (struct block *)((char *)block - HEADER); }

static void *take(size_t size, size_t alignment) {
    if (!arena) {
        arena = next = mmap(0, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (arena == MAP_FAILED) abort();
    }
    char *block = next + HEADER;
    block += -(size_t)block % alignment;
    if (block + size > arena + ARENA) return 0;
    next = block + size;
    header(block)->owner = (struct block *)&arena;
    header(block)->size = size;
    return memset(block, 1, size);
}

static void give_back(void *block) {
    if (header(block)->owner != (struct block *)&arena) abort();
    header(block)->owner = 0;
}

void *arrow_mi_malloc_aligned(size_t size, size_t alignment) { return take(size, alignment); }

void arrow_mi_free(void *block) { give_back(block); }

void *arrow_mi_realloc_aligned(void *block, size_t size, size_t alignment) {
    void *moved = take(size, alignment);
    if (moved) {
        size_t least = header(block)->size < size ? header(block)->size : size;
        memcpy(moved, block, least);
        give_back(block);
    }
    return moved;
}

/* What Python calls. */
void *pool_allocate(size_t size) { return arrow_mi_malloc_aligned(size, 64); }
void *pool_resize(void *block, size_t size) { return arrow_mi_realloc_aligned(block, size, 64); }
void pool_free(void *block) { arrow_mi_free(block); }
