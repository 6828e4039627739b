// SPDX-License-Identifier: Apache-2.0
// A program that never touches a GPU: it looks functions up, loads and unloads a library, uses
// threads, children, files, signals and a clock, and prints the results.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void say(const char *what, long value) {
    printf("%s %ld\n", what, value);
    fflush(stdout);
}

static int count(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    *(int *)arg += info->dlpi_phnum > 0;
    return 0;
}

static void look_up(void) {
    say("default", dlsym(RTLD_DEFAULT, "puts") != NULL);
    say("next", dlsym(RTLD_NEXT, "malloc") != NULL);
    say("missing", dlsym(RTLD_DEFAULT, "nobody_has_this") != NULL);
    say("error", dlerror() != NULL);
    say("cuda", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL);
    void *math = dlopen("libm.so.6", RTLD_NOW);
    double (*root)(double) = (double (*)(double))dlsym(math, "sqrt");
    say("root", root ? (long)root(49.0) : -1);
    say("close", math ? dlclose(math) : -1);
    int objects = 0;
    dl_iterate_phdr(count, &objects);
    say("objects", objects > 2);
}

static void *work(void *arg) {
    char *blocks[64];
    long sum = 0;
    for (size_t i = 0; i < 64; i++) {
        blocks[i] = malloc(i * 37 + 1);
        memset(blocks[i], (int)i, i * 37 + 1);
    }
    for (size_t i = 0; i < 64; i++) {
        sum += blocks[i][i * 37];
        free(blocks[i]);
    }
    sum += dlsym(RTLD_DEFAULT, "calloc") != NULL;
    *(long *)arg = sum;
    return NULL;
}

static void with_threads(void) {
    pthread_t thread[8];
    long sum[8];
    long all = 0;
    for (size_t i = 0; i < 8; i++)
        if (pthread_create(&thread[i], NULL, work, &sum[i]) != 0)
            exit(3);
    for (size_t i = 0; i < 8; i++) {
        pthread_join(thread[i], NULL);
        all += sum[i];
    }
    say("threads", all);
}

static volatile sig_atomic_t signals;

static void handle(int signal) {
    (void)signal;
    signals++;
}

static void with_files(void) {
    char path[] = "/tmp/gpuarb-plain-XXXXXX";
    char text[8] = "";
    int fd = mkstemp(path);
    say("write", write(fd, "words", 5));
    say("sync", fsync(fd));
    int again = open(path, O_RDONLY);
    say("read", read(again, text, sizeof text));
    say("same", strcmp(text, "words"));
    close(again);
    close(fd);
    say("unlink", unlink(path));
    say("lost", open(path, O_RDONLY));
    say("errno", errno == ENOENT);
}

int main(void) {
    look_up();
    with_threads();
    with_files();
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    say("signals", signals);
    char *map = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    map[65535] = 7;
    say("map", map[65535] + munmap(map, 65536));
    struct timespec now = {0, 0};
    say("clock", clock_gettime(CLOCK_MONOTONIC, &now));
    pid_t child = getenv("PLAIN_WITHOUT_FORK") ? -1 : fork();
    if (child == 0) {
        look_up();
        _exit(5);
    }
    int status = 0;
    if (child > 0)
        waitpid(child, &status, 0);
    say("child", WEXITSTATUS(status));
    return 0;
}
