// SPDX-License-Identifier: Apache-2.0
// spawn ROUNDS PROGRAM LIBRARY…: measures a program's start and end under each preload. Every round
// starts the program bare and once with each library, in changing order. ROUNDS is at most 100,000.
// It prints nanoseconds for each, beginning with the bare program: the lower decile, which is the
// cost if no other program on the machine interferes.
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

#define KINDS 8
#define ROUNDS 100000

static _Noreturn void die(const char *why) {
    perror(why);
    exit(1);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int64_t start(char *program, const char *library) {
    char preload[4096], *argv[] = {program, NULL}, *environ[] = {preload, NULL};
    int status;
    pid_t pid;
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", library ? library : "");
    if (!library)
        environ[0] = NULL;
    uint64_t began = now();
    if (posix_spawn(&pid, program, NULL, NULL, argv, environ) != 0 || waitpid(pid, &status, 0) < 0)
        die(program);
    int64_t took = (int64_t)(now() - began);
    if (status != 0) {
        fprintf(stderr, "%s under %s: status %d\n", program, preload, status);
        exit(1);
    }
    return took;
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t quiet(int64_t *values, size_t count) {
    qsort(values, count, sizeof *values, by_value);
    return values[count / 10];
}

int main(int argc, char **argv) {
    int kinds = argc - 2;
    size_t rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    static int64_t took[KINDS][ROUNDS];
    if (kinds < 2 || kinds > KINDS || rounds == 0)
        return 2;
    if (rounds > ROUNDS)
        rounds = ROUNDS;
    for (size_t i = 0; i < rounds; i++)
        for (int j = 0; j < kinds; j++) {
            int k = (int)((i + (size_t)j) % (size_t)kinds);
            took[k][i] = start(argv[2], k == 0 ? NULL : argv[2 + k]);
        }
    for (int k = 0; k < kinds; k++)
        printf("%jd ", (intmax_t)quiet(took[k], rounds));
    printf("\n");
    return 0;
}
