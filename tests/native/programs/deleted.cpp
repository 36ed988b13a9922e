// Makes arrays, and deletes them all. No request comes after that.
#include <cstdio>

constexpr int COUNT = 3000;
static char *arrays[COUNT];

__attribute__((noinline)) static void make()
{
    for (auto &array : arrays) {
        array = new char[10000];
        array[0] = 1;
    }
}

int main()
{
    std::setbuf(stdout, nullptr);
    make();
    for (auto array : arrays) delete[] array;
    std::puts("deleted");
}
