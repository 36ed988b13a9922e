/* A library that is loaded later. NEEDED: its functions are called through another library. OWN: it has an allocator of
   its own. Otherwise it is the library that the others need. */
#include <stdlib.h>

#if defined(OWN)
static char memory[1 << 20];
static size_t used;
int own_calls;
void *malloc(size_t size) { own_calls++; return memory + (used += (size + 15) & -16); }
void free(void *block) { own_calls++; (void)block; }
#endif

#if defined(NEEDED)
void take_needed(int count);
#else
void take_needed(int count) { while (count--) free(malloc(200)); }
#endif

void take(int count)
{
    for (int at = 0; at < count; at++) {
        char *block = malloc(100);
        block[0] = 1;
        free(block);
    }
}

void take_both(int count) { take(count); take_needed(count); }

/* Variables that hold the address of malloc: one that the library changes itself, one in read-only data. */
static int other_calls;
static void *other(size_t size) { other_calls++; (void)size; return NULL; }
void *(*variable)(size_t) = malloc;
__attribute__((constructor)) static void change(void) { variable = other; }
struct table { void *(*allocate)(size_t); void (*release)(void *); };
static const struct table constant = {malloc, free};
const struct table *volatile table = &constant;

int others_called(void) { variable(1); return other_calls; }
void take_by_table(int count) { while (count--) table->release(table->allocate(300)); }
