/* Threads that end in unusual ways, as the argument says. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The C library puts this into the stack of each thread. */
static __thread char large[300000];
static const char *way;

__attribute__((noinline)) static void allocate(void)
{
    for (int at = 0; at < 100; at++) {
        volatile char *block = malloc(100000);
        block[0] = 1;
    }
}

/* A cancelled thread ends at its next cancellation point: neither `fork` nor `exit` is one. */
static void *cancelled(void *unused)
{
    large[0] = 1;
    pthread_cancel(pthread_self());
    if (strcmp(way, "exit") == 0) exit(5);
    for (int at = 0; at < 2; at++) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        if (child > 0) puts("forked");
    }
    pthread_testcancel();
    return unused;
}

static void *last(void *unused)
{
    usleep(100000);
    allocate();
    puts("last");
    return unused;
}

int main(int number, char **words)
{
    pthread_t thread;
    way = number == 2 ? words[1] : "";
    allocate();
    pthread_create(&thread, NULL, strcmp(way, "main") == 0 ? last : cancelled, NULL);
    /* The process goes on until its last thread ends, whose status is 0. */
    if (strcmp(way, "main") == 0) pthread_exit(NULL);
    pthread_join(thread, NULL);
    while (wait(NULL) > 0) {
    }
    return 0;
}
