/* Pairs of malloc and free, as fast as they go. */
#include <stdlib.h>

void pairs(long count, size_t size)
{
    for (long at = 0; at < count; at++) {
        void *block = malloc(size);
        __asm__ volatile("" : : "r"(block) : "memory"); /* The pair must not be left out. */
        free(block);
    }
}
