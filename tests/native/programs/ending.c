/* Allocates, waits until its standard input ends, and ends in the way that its argument names. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((noinline)) static void allocate(void)
{
    for (int at = 0; at < 100; at++) {
        volatile char *block = malloc(100000);
        block[0] = 1;
    }
}

int main(int number, char **words)
{
    const char *way = number == 2 ? words[1] : "";
    allocate();
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    if (strcmp(way, "daemon") == 0 && fork() == 0) {
        for (int file = 0; file < 3; file++) close(file);
        allocate();
        while (access("go", F_OK) != 0) usleep(10000);
        close(open("gone", O_CREAT | O_WRONLY, 0600));
        return 0;
    }
    if (strcmp(way, "vfork") == 0) {
        if (vfork() == 0) {
            raise(SIGTERM);
            _exit(1);
        }
        allocate();
        return 6;
    }
    if (strcmp(way, "_exit") == 0) _exit(5);
    if (strcmp(way, "abort") == 0) abort();
    if (strcmp(way, "return") == 0 || strcmp(way, "daemon") == 0) return 6;
    raise(atoi(way));
    return 1;
}
