// Requests of two sizes, as fast as they come: eight gigabytes in all.
#include <stdlib.h>

__attribute__((noinline)) static void make(long times, size_t size) {
    for (long i = 0; i < times; i++) {
        char *volatile block = malloc(size);
        block[0] = 1;
        free(block);
    }
}

int main(void) {
    make(200000, 30000);
    make(2000000, 1000);
    return 0;
}
