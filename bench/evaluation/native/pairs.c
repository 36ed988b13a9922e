/* Pairs of malloc and free: as fast as they go, or with work between them. */
#include <stdlib.h>

void pairs(long count, size_t size, long work)
{
    for (long at = 0; at < count; at++) {
        unsigned long value = at;
        void *block = malloc(size);
        __asm__ volatile("" : : "r"(block) : "memory"); /* The pair must not be left out. */
        for (long step = 0; step < work; step++) /* Each step waits for the one before it. */
            __asm__ volatile("imul $3, %0, %0" : "+r"(value));
        free(block);
    }
}
