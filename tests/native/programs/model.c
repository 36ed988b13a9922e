/* Random calls of all functions, compared with a model: contents, alignment, zeroes, and the number of samples.
   Arguments: period, number of threads, number of calls, and whether alignment is checked. */
#include "observer.h"
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SLOTS = 600 };
struct slot { unsigned char *block; size_t size; unsigned char fill; };

static int calls, is_aligned;
static _Atomic uint64_t allocations, bytes;

static uint64_t random_number(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static size_t random_size(uint64_t *state)
{
    uint64_t kind = random_number(state) % 100;
    if (kind == 0) return 100000 + random_number(state) % 1000000;
    if (kind < 10) return 1 + random_number(state) % 20000;
    return 1 + random_number(state) % 300;
}

static void check_contents(const struct slot *slot, size_t size)
{
    for (size_t at = 0; at < size; at += size > 4096 ? 509 : 1) CHECK(slot->block[at] == slot->fill);
    CHECK(slot->block[size - 1] == slot->fill);
}

static void *work(void *argument)
{
    uint64_t state = (uintptr_t)argument;
    struct slot *slots = mmap(0, SLOTS * sizeof *slots, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(slots != MAP_FAILED);
    allocations++;
    bytes += SLOTS * sizeof *slots;
    for (int call = 0; call < calls; call++) {
        struct slot *slot = &slots[random_number(&state) % SLOTS];
        size_t size = random_size(&state), alignment = (size_t)8 << random_number(&state) % 11;
        uint64_t choice = random_number(&state) % 12;
        if (slot->block && choice > 3) {
            check_contents(slot, slot->size);
            errno = 77;
            free(slot->block);
            CHECK(errno == 77);
            slot->block = NULL;
            continue;
        }
        unsigned char *block = NULL;
        if (slot->block) {
            size_t kept = slot->size < size ? slot->size : size;
            block = choice == 0 && size % 2 == 0 ? reallocarray(slot->block, size / 2, 2) : realloc(slot->block, size);
            CHECK(block);
            slot->block = block;
            check_contents(slot, kept);
        } else switch (choice) {
        case 0: block = realloc(NULL, size); break;
        case 1: case 2: case 3:
            block = calloc(size, 1);
            for (size_t at = 0; at < size; at++) CHECK(block[at] == 0);
            break;
        case 4: CHECK(posix_memalign((void **)&block, alignment, size) == 0); CHECK(!is_aligned || (uintptr_t)block % alignment == 0); break;
        case 5: block = aligned_alloc(alignment, size = (size + alignment - 1) & -alignment); CHECK(!is_aligned || (uintptr_t)block % alignment == 0); break;
        case 6: block = memalign(alignment, size); CHECK(!is_aligned || (uintptr_t)block % alignment == 0); break;
        case 7: block = valloc(size); CHECK((uintptr_t)block % 4096 == 0); break;
        default: block = malloc(size);
        }
        CHECK(block && malloc_usable_size(block) >= size);
        allocations++;
        bytes += size;
        slot->block = block, slot->size = size, slot->fill = (unsigned char)(call | 1);
        memset(block, slot->fill, size);
    }
    for (struct slot *slot = slots; slot < slots + SLOTS; slot++)
        if (slot->block) check_contents(slot, slot->size), free(slot->block);
    munmap(slots, SLOTS * sizeof *slots);
    return NULL;
}

int main(int count, char **arguments)
{
    CHECK(count == 5);
    int threads = atoi(arguments[2]);
    calls = atoi(arguments[3]);
    is_aligned = atoi(arguments[4]);
    struct interface *interface = connect_with(strtoull(arguments[1], NULL, 10));
    if (threads == 0) {
        work((void *)(uintptr_t)1);
    } else {
        pthread_t all[64];
        for (int at = 0; at < threads; at++) {
            ++*interface->busy(); /* The thread's own memory. */
            CHECK(pthread_create(&all[at], NULL, work, (void *)(uintptr_t)(at + 1)) == 0);
            --*interface->busy();
        }
        for (int at = 0; at < threads; at++) pthread_join(all[at], NULL);
    }
    interface->disconnect();
    /* Requests that fail. */
    volatile size_t most = (size_t)-1;
    errno = 0;
    CHECK(calloc(most, 2) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(reallocarray(NULL, most, 3) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(malloc(most / 2) == NULL && errno == ENOMEM);
    void *place;
    CHECK(posix_memalign(&place, 24, 8) == EINVAL);
    printf("%lu %lu %lu %lu %lu\n", (unsigned long)samples, (unsigned long)frees, (unsigned long)sampled_bytes,
           (unsigned long)allocations, (unsigned long)bytes);
    return 0;
}
