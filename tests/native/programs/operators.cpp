// All forms of C++'s `operator new` and `operator delete`, each in a function of its own, in threads. As a library, `plug`
// does the same. Prints the name of each, its calls, bytes, and bytes that are left.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

static constexpr int ROUNDS = 400, THREADS = 3;
static constexpr auto ALIGNED = std::align_val_t{128};

// Multiples of the alignment: the C++ library rounds others up.
static constexpr size_t size_of(int round) { return 128 * (1 + static_cast<size_t>(round) * 37 % 160); }

// Every fourth block stays.
#define FORM(name, make, drop) \
    extern "C" __attribute__((noinline)) void name() \
    { \
        for (int round = 0; round < ROUNDS; round++) { \
            size_t size = size_of(round); \
            auto *block = static_cast<unsigned char *>(make); \
            std::memset(block, round, size); \
            asm volatile("" : : "r"(block) : "memory"); \
            if (block[size - 1] != static_cast<unsigned char>(round)) std::abort(); \
            if (round % 4) drop; \
        } \
    }

FORM(form_single, ::operator new(size), ::operator delete(block))
FORM(form_sized, ::operator new(size), ::operator delete(block, size))
FORM(form_array, ::operator new[](size), ::operator delete[](block))
FORM(form_array_sized, ::operator new[](size), ::operator delete[](block, size))
FORM(form_nothrow, ::operator new(size, std::nothrow), ::operator delete(block, std::nothrow))
FORM(form_array_nothrow, ::operator new[](size, std::nothrow), ::operator delete[](block, std::nothrow))
FORM(form_aligned, ::operator new(size, ALIGNED), ::operator delete(block, ALIGNED))
FORM(form_array_aligned, ::operator new[](size, ALIGNED), ::operator delete[](block, ALIGNED))
FORM(form_aligned_sized, ::operator new(size, ALIGNED), ::operator delete(block, size, ALIGNED))
FORM(form_array_aligned_sized, ::operator new[](size, ALIGNED), ::operator delete[](block, size, ALIGNED))
FORM(form_aligned_nothrow, ::operator new(size, ALIGNED, std::nothrow), ::operator delete(block, ALIGNED, std::nothrow))
FORM(form_array_aligned_nothrow, ::operator new[](size, ALIGNED, std::nothrow), ::operator delete[](block, ALIGNED, std::nothrow))
FORM(form_malloc, std::malloc(size), std::free(block))

static constexpr struct {
    const char *name;
    void (*run)();
} FORMS[] = {
    {"form_single", form_single},
    {"form_sized", form_sized},
    {"form_array", form_array},
    {"form_array_sized", form_array_sized},
    {"form_nothrow", form_nothrow},
    {"form_array_nothrow", form_array_nothrow},
    {"form_aligned", form_aligned},
    {"form_array_aligned", form_array_aligned},
    {"form_aligned_sized", form_aligned_sized},
    {"form_array_aligned_sized", form_array_aligned_sized},
    {"form_aligned_nothrow", form_aligned_nothrow},
    {"form_array_aligned_nothrow", form_array_aligned_nothrow},
    {"form_malloc", form_malloc},
};

// What no allocator has: the exception passes through whoever stands before the operator.
static int refused()
{
    int caught = 0;
    for (int at = 0; at < 3; at++) {
        try {
            asm volatile("" : : "r"(::operator new(static_cast<size_t>(PTRDIFF_MAX) - 64)));
        } catch (const std::bad_alloc &) {
            caught++;
        }
    }
    return caught;
}

extern "C" int plug(int refuses)
{
    // One after the other: a sample waits for another thread's for a bounded time.
    for (int at = 0; at < THREADS; at++)
        std::thread([] {
            for (auto &form : FORMS) form.run();
        }).join();
    size_t bytes = 0, left = 0;
    for (int round = 0; round < ROUNDS; round++) {
        size_t size = size_of(round);
        bytes += size;
        left += round % 4 ? 0 : size;
    }
    for (auto &form : FORMS)
        std::printf("%s %d %zu %zu\n", form.name, THREADS * ROUNDS, THREADS * bytes, THREADS * left);
    if (refuses) std::printf("refused %d\n", refused());
    std::fflush(stdout);
    return 0;
}

// mimalloc 2.0.9 ends the process where it has no memory for `new`: not with an argument.
int main(int count, char **) { return plug(count == 1); }
