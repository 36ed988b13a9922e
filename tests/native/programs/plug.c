/* A library that is loaded while the program runs. */
#include <stdlib.h>

long plug(long count)
{
    long bytes = 0;
    for (long at = 1; at <= count; at++) {
        volatile char *block = malloc((size_t)at * 10);
        block[0] = 1;
        bytes += at * 10;
        free((void *)block);
    }
    return bytes;
}
