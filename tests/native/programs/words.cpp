// Counts words in C++ containers: templates, `new`, and memory that is alive at the end.
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

template <typename T> struct Table {
    std::vector<std::unique_ptr<T>> rows;
    __attribute__((noinline)) void fill(int count)
    {
        for (int at = 0; at < count; at++) rows.push_back(std::make_unique<T>(T(64 + at % 64, 'x')));
    }
};

__attribute__((noinline)) static size_t churn(int count)
{
    size_t length = 0;
    for (int at = 0; at < count; at++) length += std::string(200, static_cast<char>('a' + at % 26)).size();
    return length;
}

int main()
{
    static auto *table = new Table<std::string>();
    table->fill(50000);
    std::printf("%zu %zu\n", table->rows.size(), churn(100000));
    return 0;
}
