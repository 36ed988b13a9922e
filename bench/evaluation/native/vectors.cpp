// Vectors that grow. Prints the CPU time in seconds and the page faults, as JSON. The first argument is the number of rounds; with a second
// one, the process has had another thread.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

static size_t round_of(unsigned seed)
{
    std::vector<double> numbers;
    for (unsigned n = 0; n < 400000 + seed % 7; n++) numbers.push_back(n * 0.5);
    std::vector<std::string> words;
    for (unsigned n = 0; n < 40000; n++) words.push_back(std::string(20 + n % 50, 'x'));
    std::vector<std::vector<int>> lists(2000);
    for (unsigned n = 0; n < 300000; n++) lists[n * 7919u % 2000].push_back(int(n));
    return numbers.size() + words.back().size() + lists[7].size();
}

int main(int count, char **arguments)
{
    unsigned rounds = count > 1 ? unsigned(atoi(arguments[1])) : 100;
    if (count > 2) std::thread([] {}).join();
    size_t sum = 0;
    for (unsigned n = 0; n < rounds / 10 + 2; n++) sum += round_of(n);
    rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    clock_t start = clock();
    for (unsigned n = 0; n < rounds; n++) sum += round_of(n);
    double cpu = double(clock() - start) / CLOCKS_PER_SEC;
    getrusage(RUSAGE_SELF, &after);
    printf("{\"cpu\": %f, \"faults\": %ld}\n", cpu, after.ru_minflt - before.ru_minflt);
    return sum == 0;
}
