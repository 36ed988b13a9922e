// A library with known chains of calls: a class template, functions that are inlined, and calls back into Python. They
// allocate, or use up CPU time of their thread, by its own clock.
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <pthread.h>
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

static double used() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

__attribute__((noinline)) static void spend(double seconds) {
    double end = used() + seconds;
    while (used() < end)
        for (volatile int at = 0; at < 10000; at = at + 1) {
        }
    after = 7;
}

__attribute__((noinline)) static void light(double seconds) {
    spend(seconds);
    after = 8;
}

__attribute__((noinline)) static void heavy(double seconds) {
    spend(seconds);
    after = 9;
}

// Spends, or calls, below so many frames, of 128 bytes at least.
__attribute__((noinline)) static void descend(int depth, double seconds, void (*call)()) {
    volatile char room[100];
    room[0] = static_cast<char>(depth);
    if (depth > 0)
        descend(depth - 1, seconds, call);
    else if (call)
        call();
    else
        spend(seconds);
    after = room[0];
}

static double in_handler;

static void handler(int) {
    spend(in_handler);
    after = 10;
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

void chains_spend(double light, double heavy) {
    chains::light(light);
    chains::heavy(heavy);
    chains::after = 11;
}

void chains_descend(int depth, double seconds, void (*call)()) {
    chains::descend(depth, seconds, call);
    chains::after = 12;
}

// A thread that Python does not know.
void chains_spend_in_thread(double seconds) {
    std::thread thread([=] {
        chains::light(seconds);
        chains::after = 13;
    });
    thread.join();
}

// A thread that is cancelled, which has no effect before the next cancellation point. Returns whether it came there.
int chains_spend_cancelled(double seconds) {
    struct Work {
        double seconds;
        bool is_done;
    } work = {seconds, false};
    pthread_t thread;
    auto run = [](void *given) -> void * {
        pthread_cancel(pthread_self());
        Work *work = static_cast<Work *>(given);
        chains::light(work->seconds);
        work->is_done = true;
        pthread_testcancel();
        return nullptr;
    };
    pthread_create(&thread, nullptr, run, &work);
    pthread_join(thread, nullptr);
    chains::after = 15;
    return work.is_done;
}

// In a signal handler on a stack of its own.
void chains_spend_in_handler(double seconds) {
    stack_t stack = {}, before;
    stack.ss_size = 64 << 10;
    stack.ss_sp = std::malloc(stack.ss_size);
    sigaltstack(&stack, &before);
    struct sigaction action = {}, other;
    action.sa_handler = chains::handler;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR2, &action, &other);
    chains::in_handler = seconds;
    raise(SIGUSR2);
    sigaction(SIGUSR2, &other, nullptr);
    sigaltstack(&before, nullptr);
    std::free(stack.ss_sp);
}
}
