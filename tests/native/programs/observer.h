/* Connects to the preloaded library as an agent does: the interface of crates/session/src/preload.rs in C. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct request { uint64_t size, period; uint32_t points; uint32_t kind; uintptr_t caller, lazy; };
struct settings {
    uint64_t period, seed;
    uintptr_t excluded[4][2];
    uint64_t (*sampled)(const struct request *);
    void (*freed)(uint64_t);
    void (*look)(uint64_t);
    _Bool (*unmap)(uintptr_t, size_t);
};
struct interface {
    uint32_t version;
    _Bool (*attach)(void);
    void (*connect)(const struct settings *);
    void (*set_period)(uint64_t);
    void (*disconnect)(void);
    void (*each_block)(void *, void (*)(void *, uintptr_t, uint64_t));
    uint32_t *(*busy)(void);
};

static _Atomic uint64_t samples, frees, sampled_bytes, next_token;
static _Atomic uint64_t kinds[7];

#define CHECK(what) \
    do { if (!(what)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); _exit(9); } } while (0)

static uint64_t sampled(const struct request *request)
{
    samples++;
    sampled_bytes += request->size;
    kinds[request->kind]++;
    /* What the observer allocates is not sampled, also where it calls the C library. */
    free(malloc(100));
    return next_token++;
}

static void freed(uint64_t token) { (void)token; frees++; }

/* No memory of this observer counts with what is touched of it. */
static void look(uint64_t token) { (void)token; CHECK(0); }

static _Bool unmap(uintptr_t start, size_t size) { (void)start; (void)size; return 0; }

__attribute__((unused)) static struct interface *connect_to(struct interface *interface, uint64_t period)
{
    CHECK(interface && interface->version == 6);
    CHECK(interface->attach());
    struct settings settings = {.period = period, .seed = 7, .sampled = sampled, .freed = freed, .look = look,
                                .unmap = unmap};
    interface->connect(&settings);
    return interface;
}

/* The same with the library that was preloaded. */
__attribute__((unused)) static struct interface *connect_with(uint64_t period)
{
    return connect_to(dlsym(RTLD_DEFAULT, "nthbyte_native_interface"), period);
}
