/* The pairs of pairs.c in a program. Prints the CPU time of a pair, in nanoseconds. */
#include <stdio.h>
#include <time.h>

#include "pairs.c"

int main(int number, char **words)
{
    if (number != 4) return 2;
    long count = atol(words[1]);
    struct timespec start, end;
    pairs(1000, (size_t)atol(words[2]), 0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    pairs(count, (size_t)atol(words[2]), atol(words[3]));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    double took = (double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec);
    printf("%f\n", took / (double)count);
    return 0;
}
