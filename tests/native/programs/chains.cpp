// A library with known chains of calls: a class template, functions that are inlined, and calls back into Python.
#include <cstdlib>
#include <thread>

namespace chains {

// Keeps a call from being the last instruction of its function.
static volatile int after;

struct Store {
    static inline __attribute__((always_inline)) void *inlined(std::size_t size) {
        void *block = std::malloc(size);
        after = 1;
        return block;
    }

    template <typename T> __attribute__((noinline)) void *allocate(std::size_t count) {
        void *block = inlined(count * sizeof(T));
        after = 2;
        return block;
    }
};

__attribute__((noinline)) static void *deep(int depth, std::size_t size) {
    volatile char room[100];
    room[0] = static_cast<char>(depth);
    void *block = depth == 0 ? Store().allocate<int>(size / sizeof(int)) : deep(depth - 1, size);
    after = room[0];
    return block;
}

} // namespace chains

extern "C" {

void *chains_allocate(std::size_t size) {
    void *block = chains::deep(2, size);
    chains::after = 3;
    return block;
}

// Calls `middle`, which may be a function of Python.
void chains_call(void (*middle)()) {
    middle();
    chains::after = 4;
}

void chains_deep(int depth, std::size_t size) {
    chains::deep(depth, size);
    chains::after = 5;
}

// A thread that Python does not know.
void chains_thread(int count, std::size_t size) {
    std::thread thread([=] {
        for (int at = 0; at < count; at++)
            chains::deep(1, size);
        chains::after = 6;
    });
    thread.join();
}
}
