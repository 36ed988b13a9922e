/* A program with an allocator of its own, which has the four functions that it must have (see the C library's manual,
   "Replacing malloc"). It ends at a block of another one. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC = 0x6e746862, ROOM = 1 << 24 };

struct header {
    size_t magic, size;
};

static _Alignas(16) unsigned char room[ROOM];
static size_t used;

static struct header *header(void *block)
{
    struct header *found = (struct header *)block - 1;
    if ((unsigned char *)block < room || (unsigned char *)block >= room + ROOM || found->magic != MAGIC) abort();
    return found;
}

void *malloc(size_t size)
{
    size_t whole = (sizeof(struct header) + size + 15) & ~(size_t)15;
    size_t at = __atomic_fetch_add(&used, whole, __ATOMIC_RELAXED);
    if (at + whole > ROOM) return NULL;
    struct header *made = (struct header *)(room + at);
    *made = (struct header){MAGIC, size};
    return made + 1;
}

void free(void *block)
{
    if (block) header(block);
}

void *calloc(size_t count, size_t size)
{
    return malloc(count * size);
}

void *realloc(void *block, size_t size)
{
    void *made = malloc(size);
    if (block && made) {
        size_t before = header(block)->size;
        memcpy(made, block, before < size ? before : size);
    }
    return made;
}

int main(void)
{
    int *numbers = reallocarray(NULL, 4, 8);
    numbers[7] = 7;
    numbers = reallocarray(numbers, 8, 8);
    header(numbers);
    printf("%d\n", numbers[7]);
    free(numbers);
    /* The product overflows. */
    volatile size_t many = SIZE_MAX / 2;
    printf("%p\n", reallocarray(NULL, many, 4));
    return 0;
}
