/* Threads, forks, and libraries that come and go, while each of them allocates. */
#include "observer.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void *allocate(void *argument)
{
    for (int at = 0; at < 40; at++) {
        char *block = malloc(5000 + at);
        CHECK(block);
        block[0] = block[4999] = 1;
        block = realloc(block, 9000);
        CHECK(block && block[0] == 1 && block[4999] == 1);
        free(block);
    }
    return argument;
}

static void *storm(void *argument)
{
    for (int at = 0; at < *(int *)argument; at++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, allocate, NULL) == 0);
        pthread_join(thread, NULL);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    CHECK(count == 5);
    connect_with(strtoull(arguments[1], NULL, 10));
    int threads = atoi(arguments[2]) / 4, forks = atoi(arguments[3]);
    pthread_t all[4];
    for (int at = 0; at < 4; at++) CHECK(pthread_create(&all[at], NULL, storm, &threads) == 0);
    for (int at = 0; at < forks; at++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            allocate(NULL);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    for (int at = 0; at < forks; at++) {
        void *library = dlopen(arguments[4], RTLD_NOW);
        CHECK(library);
        allocate(NULL);
        dlclose(library);
    }
    for (int at = 0; at < 4; at++) pthread_join(all[at], NULL);
    /* Mappings: also partly unmapped, moved, and made of nothing. */
    for (int at = 0; at < 200; at++) {
        char *start = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(start != MAP_FAILED);
        start[0] = 7;
        start = mremap(start, 1 << 20, 2 << 20, MREMAP_MAYMOVE);
        CHECK(start != MAP_FAILED && start[0] == 7);
        CHECK(munmap(start + (1 << 20), 1 << 20) == 0 && munmap(start, 1 << 20) == 0);
        CHECK(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
        void *reserved = mmap(NULL, 1l << 36, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(reserved != MAP_FAILED && munmap(reserved, 1l << 36) == 0);
    }
    printf("%lu %lu %lu\n", (unsigned long)samples, (unsigned long)frees, (unsigned long)kinds[4]);
    return 0;
}
