/* Prints what the program inherits: environment, ignored signals, open files, arguments. With an argument, it runs itself. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int number, char **words)
{
    for (int at = 0; at < number; at++) {
        printf("argument ");
        for (char *letter = words[at]; *letter != 0; letter++) printf("%02x", (unsigned char)*letter);
        printf("\n");
    }
    for (char **entry = environ; *entry != NULL; entry++) printf("%s\n", *entry);
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (strncmp(line, "SigIgn", 6) == 0 || strncmp(line, "SigBlk", 6) == 0) printf("%s", line);
    fclose(status);
    for (int file = 0; file < 100; file++)
        if (fcntl(file, F_GETFD) != -1) printf("file %d\n", file);
    fflush(stdout);
    if (number > 1 && vfork() == 0) {
        execl("/proc/self/exe", "again", NULL);
        _exit(1);
    }
    wait(NULL);
    return 0;
}
