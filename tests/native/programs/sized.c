/* Threads that keep blocks, and free others: half of them with the size that they were asked for, by the allocator's
   function that the argument names. Prints how many bytes are not what was written, the largest room of a block, and how
   many bytes stay. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void sdallocx(void *block, size_t size, int flags) __attribute__((weak));
extern void dallocx(void *block, int flags) __attribute__((weak));
extern void tc_free_sized(void *block, size_t size) __attribute__((weak));

/* A batch is larger than what an allocator keeps for a thread, so blocks go back to where all threads take them. */
enum { THREADS = 4, KEPT = 5000, BATCH = 1500, ROUNDS = 300, SIZE = 100 };

static void by_sdallocx(void *block) { sdallocx(block, SIZE, 0); }
static void by_dallocx(void *block) { dallocx(block, 0); }
static void by_tc_free_sized(void *block) { tc_free_sized(block, SIZE); }

static void (*give_back)(void *) = free;

struct work {
    pthread_t thread;
    unsigned seed;
    unsigned char *blocks[KEPT];
    long differ, room;
};

__attribute__((noinline)) static void make(struct work *work, int at)
{
    unsigned char *block = malloc(SIZE);
    if (!block) abort();
    memset(block, at % 251, SIZE);
    long room = malloc_usable_size(block);
    if (room > work->room) work->room = room;
    work->blocks[at] = block;
}

static void end(struct work *work, int at)
{
    unsigned char *block = work->blocks[at];
    for (int place = 0; place < SIZE; place++) work->differ += block[place] != at % 251;
    (rand_r(&work->seed) % 2 ? give_back : free)(block);
    work->blocks[at] = NULL;
}

static void *run(void *given)
{
    struct work *work = given;
    for (int at = 0; at < KEPT; at++) make(work, at);
    for (int round = 0; round < ROUNDS; round++) {
        for (int one = 0; one < BATCH; one++) {
            int at = rand_r(&work->seed) % KEPT;
            if (work->blocks[at]) end(work, at);
        }
        for (int at = 0; at < KEPT; at++)
            if (!work->blocks[at]) make(work, at);
    }
    for (int at = 0; at < KEPT; at += 2) end(work, at);
    return NULL;
}

int main(int number, char **words)
{
    static struct work all[THREADS];
    const char *way = number == 2 ? words[1] : "";
    if (strcmp(way, "sdallocx") == 0) give_back = by_sdallocx;
    if (strcmp(way, "dallocx") == 0) give_back = by_dallocx;
    if (strcmp(way, "tc_free_sized") == 0) give_back = by_tc_free_sized;
    long differ = 0, room = 0;
    for (int at = 0; at < THREADS; at++) {
        all[at].seed = at;
        pthread_create(&all[at].thread, NULL, run, &all[at]);
    }
    for (int at = 0; at < THREADS; at++) {
        pthread_join(all[at].thread, NULL);
        differ += all[at].differ;
        if (all[at].room > room) room = all[at].room;
    }
    printf("differ %ld\nroom %ld\nstay %d\n", differ, room, THREADS * KEPT / 2 * SIZE);
    return 0;
}
