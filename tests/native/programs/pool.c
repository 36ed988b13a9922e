/* A library that works in a thread of its own. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { BLOCKS = 500, SIZE = 40000 };

static void *take(void *seconds)
{
    if (seconds)
        usleep(300000);
    for (int at = 0; at < BLOCKS; at++) {
        void *volatile block = malloc(SIZE);
        (void)block;
    }
    return NULL;
}

static pthread_t later;

/* Waits for the thread. */
int work(void)
{
    pthread_t thread;
    return pthread_create(&thread, NULL, take, NULL) || pthread_join(thread, NULL);
}

/* Leaves return addresses of this library below the caller's stack. */
static int leave(int frames)
{
    volatile char room[64];
    room[0] = frames ? leave(frames - 1) : 0;
    return room[0];
}

/* Does not wait: the thread works a moment later. */
int begin(void)
{
    leave(100);
    return pthread_create(&later, NULL, take, &later);
}

int end(void)
{
    return pthread_join(later, NULL);
}
