/* Threads that end in unusual ways, as the argument says. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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

/* Waits until the main thread has ended: /proc shows it as a zombie. */
static void await_main(void)
{
    for (char state = 0; state != 'Z'; usleep(1000)) {
        char line[256] = "";
        FILE *file = fopen("/proc/self/stat", "r");
        if (file == NULL) continue;
        char *name_end = fgets(line, sizeof line, file) == NULL ? NULL : strrchr(line, ')');
        if (name_end != NULL) state = name_end[2];
        fclose(file);
    }
}

/* Only this thread blocks the signal, and takes it when the main thread has ended. */
static void *waiting(void *unused)
{
    sigset_t set;
    int number = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    await_main();
    allocate();
    kill(getpid(), SIGUSR1);
    sigwait(&set, &number);
    puts(number == SIGUSR1 ? "got" : "another");
    return unused;
}

/* When the main thread has ended, no file can be opened any more. */
static void *without_files(void *unused)
{
    await_main();
    allocate();
    int free_number = dup(0);
    struct rlimit limit = {free_number, free_number};
    close(free_number);
    printf("limited %d\n", setrlimit(RLIMIT_NOFILE, &limit));
    return unused;
}

static void *(*work(void))(void *)
{
    if (strcmp(way, "main") == 0) return last;
    if (strcmp(way, "signal") == 0) return waiting;
    if (strcmp(way, "files") == 0) return without_files;
    return cancelled;
}

int main(int number, char **words)
{
    pthread_t thread;
    way = number == 2 ? words[1] : "";
    allocate();
    pthread_create(&thread, NULL, work(), NULL);
    /* The process goes on until its last thread ends, whose status is 0. */
    if (work() != cancelled) pthread_exit(NULL);
    pthread_join(thread, NULL);
    while (wait(NULL) > 0) {
    }
    return 0;
}
