/* Counts its own requests. Prints the calls and the bytes of `work` in all threads, and the bytes of them that are left;
   then the same of the library. A forked child prints its own line first. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct { long calls, bytes, left; } Count;

#define KEPT 16
static void *kept[64][KEPT];

__attribute__((noinline)) void work(int thread, int rounds, Count *count)
{
    for (int round = 0; round < rounds; round++) {
        size_t size = 16 + (size_t)(round * 37 + thread) % 3000;
        void *block;
        switch (round % 4) {
        case 0: block = malloc(size); break;
        case 1: block = calloc(size, 2); size *= 2; break;
        case 2: block = aligned_alloc(64, size); break;
        default: block = malloc(size); count->calls++; count->bytes += (long)size; size += 5000;
                 block = realloc(block, size); break;
        }
        if (block == NULL) abort();
        memset(block, 1, size);
        count->calls++;
        count->bytes += (long)size;
        if (round >= rounds - KEPT) {
            kept[thread][rounds - 1 - round] = block;
            count->left += (long)size;
        } else {
            free(block);
        }
    }
}

static int rounds;
static Count counts[64];

static void *enter(void *thread)
{
    work((int)(long)thread, rounds, &counts[(long)thread]);
    return NULL;
}

static void say(const char *what, Count count)
{
    printf("%s %ld %ld %ld\n", what, count.calls, count.bytes, count.left);
    fflush(stdout);
}

int main(int number, char **words)
{
    int threads = atoi(words[1]);
    rounds = atoi(words[2]);
    pthread_t all[64];
    Count sum = {0, 0, 0};
    for (long thread = 1; thread <= threads; thread++)
        pthread_create(&all[thread], NULL, enter, (void *)thread);
    work(0, rounds, &counts[0]);
    for (int thread = 1; thread <= threads; thread++)
        pthread_join(all[thread], NULL);
    for (int thread = 0; thread <= threads; thread++) {
        sum.calls += counts[thread].calls;
        sum.bytes += counts[thread].bytes;
        sum.left += counts[thread].left;
    }
    pid_t child = fork();
    if (child == 0) {
        Count own = {0, 0, 0};
        work(63, rounds, &own);
        say("child", own);
        _exit(7);
    }
    int status;
    waitpid(child, &status, 0);
    say("all", sum);
    void *library = dlopen(words[3], RTLD_NOW);
    long (*plug)(long) = library ? (long (*)(long))dlsym(library, "plug") : NULL;
    if (plug == NULL) return 1;
    say("plug", (Count){100, plug(100), 0});
    return number == 4 && WEXITSTATUS(status) == 7 ? 42 : 1;
}
