/* Allocates, at least ten thousand times, until a signal comes, which usually interrupts malloc or free. The handler ends the process with 7, as many
   programs do at SIGINT. The first argument is the time in microseconds, the second the function: exit or _exit. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static void end(int number)
{
    (void)number;
    exit(7);
}

static void end_at_once(int number)
{
    (void)number;
    _exit(7);
}

int main(int number, char **words)
{
    static void *blocks[64];
    if (number != 3) return 1;
    struct itimerval timer = {{0, 0}, {0, atoi(words[1])}};
    signal(SIGALRM, strcmp(words[2], "exit") == 0 ? end : end_at_once);
    for (unsigned turn = 0;; turn++) {
        if (turn == 10000) setitimer(ITIMER_REAL, &timer, NULL);
        unsigned at = turn * 2654435761u >> 26;
        free(blocks[at]);
        blocks[at] = malloc(2000 + turn * 7919u % 60000);
    }
}
