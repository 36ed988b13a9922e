/* Loads nthbyte's library into a running program, and other libraries afterwards. Arguments: nthbyte's library, and
   the folder of the others. With a period of 1, each call that reaches nthbyte is a sample. */
#include "observer.h"
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>

typedef void take_function(int);
static const char *folder;

static void *open_library(const char *name, int flags)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    void *library = dlopen(path, flags);
    if (!library) fprintf(stderr, "%s\n", dlerror());
    CHECK(library);
    return library;
}

static void *look_up(void *library, const char *name)
{
    errno = 77;
    void *function = dlsym(library, name);
    CHECK(function && errno == 77);
    return function;
}

/* The samples of one call. */
static int samples_of(void *library, const char *name, int count)
{
    take_function *function = look_up(library, name);
    uint64_t before = samples, freed_before = frees;
    function(count);
    CHECK(samples - before == frees - freed_before);
    return samples - before;
}

static void check_plugin(int flags)
{
    void *plugin = open_library("plugin.so", flags);
    CHECK(samples_of(plugin, "take", 10) == 10);
    CHECK(samples_of(plugin, "take_both", 10) == 20);
    CHECK(samples_of(plugin, "take_by_table", 10) == 10);
    int (*others_called)(void) = look_up(plugin, "others_called");
    CHECK(others_called() == 1);
    CHECK(dlclose(plugin) == 0);
}

static void *come_and_go(void *argument)
{
    char name[20];
    snprintf(name, sizeof name, "plugin%d.so", (int)(intptr_t)argument);
    for (int at = 0; at < 100; at++) {
        void *plugin = open_library(name, RTLD_NOW);
        ((take_function *)look_up(plugin, "take_both"))(10);
        CHECK(dlclose(plugin) == 0);
    }
    return NULL;
}

/* The bytes of mapped files that may be written to, but for nthbyte's own library's: it opens its reserve. */
static unsigned long writable(const char *own)
{
    unsigned long found = 0, start, end;
    char line[1000], access[5], path[500];
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %4s %*s %*s %*s %499s", &start, &end, access, path) == 4)
            found += access[1] == 'w' && path[0] == '/' && strcmp(path, own) != 0 ? end - start : 0;
    fclose(maps);
    return found;
}

/* Calls of a library that nobody has looked into yet are sampled in a child. */
static void check_in_child(void *library)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        CHECK(samples_of(library, "take", 10) == 10);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void *load_nothing(void *argument)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/blocked.so", folder);
    CHECK(dlopen(path, RTLD_NOW) == NULL);
    return argument;
}

static sem_t inside, outside;

static int stay(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)info, (void)size, (void)data;
    sem_post(&inside);
    while (sem_wait(&outside)) {}
    return 1;
}

static void *iterate(void *argument) { dl_iterate_phdr(stay, NULL); return argument; }

int main(int count, char **arguments)
{
    CHECK(count == 3);
    folder = arguments[2];
    void *early = open_library("early.so", RTLD_LAZY);
    ((take_function *)dlsym(early, "take"))(1);
    void *before = malloc(5000);
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    CHECK(library);
    unsigned long before_it = writable(arguments[1]);
    connect_to(dlsym(library, "nthbyte_native_interface"), 1);
    CHECK(writable(arguments[1]) == before_it);
    free(before);

    /* The calls of this program and of a library that was loaded before, and what dlsym finds. */
    uint64_t seen = samples;
    free(malloc(100));
    CHECK(samples == seen + 1);
    CHECK(samples_of(early, "take", 10) == 10);
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void *(*allocate)(size_t) = look_up(libc, "malloc");
    seen = samples;
    free(allocate(100));
    CHECK(samples == seen + 1);
    CHECK(dlsym(libc, "no function has this name") == NULL && strstr(dlerror(), "no function has this name"));

    for (int at = 0; at < 20; at++) check_plugin(at % 2 ? RTLD_NOW : RTLD_LAZY);
    check_plugin(RTLD_NOW | RTLD_DEEPBIND);

    /* A library in another namespace has a C library of its own. */
    char file[1000];
    snprintf(file, sizeof file, "%s/early.so", folder);
    void *apart = dlmopen(LM_ID_NEWLM, file, RTLD_LAZY);
    CHECK(apart);
    CHECK(samples_of(apart, "take", 10) == 0);
    CHECK(dlclose(apart) == 0);

    /* Allocators of libraries are left alone, however they are bound. */
    for (int at = 0; at < 3; at++) {
        int flags[] = {RTLD_NOW, RTLD_NOW, RTLD_LAZY | RTLD_DEEPBIND};
        void *own = open_library(at == 1 ? "symbolic.so" : "own.so", flags[at]);
        int expected = at == 0 ? 10 : 0;
        CHECK(samples_of(own, "take", 10) == expected);
        CHECK(*(int *)look_up(own, "own_calls") == 2 * (10 - expected));
        CHECK(dlclose(own) == 0);
    }

    void *deep = open_library("deep.so", RTLD_LAZY | RTLD_DEEPBIND);
    CHECK(samples_of(deep, "take", 10) == 0);
    CHECK(*(int *)look_up(deep, "own_calls") == 20);
    CHECK(dlclose(deep) == 0);

    /* Code with relocations in it stays executable. */
    void *text = open_library("text.so", RTLD_NOW);
    for (int at = 0; at < 2; at++) ((take_function *)look_up(text, "take_text"))(10);

    /* Another thread holds the lock of dl_iterate_phdr, which may wait for this one. */
    pthread_t thread;
    sem_init(&inside, 0, 0), sem_init(&outside, 0, 0);
    void *late = open_library("plugin.so", RTLD_NOW);
    CHECK(pthread_create(&thread, NULL, iterate, NULL) == 0);
    while (sem_wait(&inside)) {}
    CHECK(samples_of(late, "take_both", 10) == 20);
    sem_post(&outside);
    pthread_join(thread, NULL);

    /* Threads load and unload libraries, while children are made. (A child in which the dynamic linker was interrupted
       cannot load libraries, also without nthbyte.) */
    pthread_t threads[4];
    seen = samples;
    for (intptr_t at = 0; at < 4; at++) CHECK(pthread_create(&threads[at], NULL, come_and_go, (void *)at) == 0);
    for (int at = 0; at < 200; at++) {
        void *fresh = open_library("plugin4.so", RTLD_NOW);
        check_in_child(fresh);
        CHECK(dlclose(fresh) == 0);
    }
    for (int at = 0; at < 4; at++) pthread_join(threads[at], NULL);
    printf("%d\n", (int)(samples - seen));

    /* A fork while another thread is loading a library: it waits for one that it needs, which is a pipe. */
    CHECK(open_library("libneeded.so", RTLD_NOW));
    void *fresh = open_library("plugin4.so", RTLD_NOW);
    CHECK(pthread_create(&thread, NULL, load_nothing, NULL) == 0);
    const ElfW(Dyn) *entry = _DYNAMIC;
    while (entry->d_tag != DT_DEBUG) entry++;
    while (*(volatile int *)&((struct r_debug *)entry->d_un.d_ptr)->r_state == RT_CONSISTENT) usleep(100);
    check_in_child(fresh);
    char path[1000];
    snprintf(path, sizeof path, "%s/libpipe.so", folder);
    int end = open(path, O_WRONLY);
    CHECK(end >= 0 && close(end) == 0);
    pthread_join(thread, NULL);
    return 0;
}
