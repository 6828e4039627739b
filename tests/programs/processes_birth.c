// SPDX-License-Identifier: Apache-2.0
// Stories of children, and of processes that execute other programs.
#include "processes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define CHILDREN 20

static int status_of(pid_t child) {
    int status = 0;
    must(child > 0 && waitpid(child, &status, 0) == child, "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// Forks past libc, so that no handler of pthread_atfork runs.
static pid_t raw_fork(void) {
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L);
}

// Checks that a child of a program that uses the GPU cannot use it: each call fails, and the
// parent's memory does not change.
static void be_a_child(CUdeviceptr parents) {
    CUdeviceptr p = 0;
    CUstream s = NULL;
    int failed = (CU(cuMemAlloc_v2)(&p, MIB) != 0) + (CU(cuMemFree_v2)(parents) != 0) +
                 (CU(cuStreamCreate)(&s, 0) != 0);
    _exit(failed);
}

static int forks(bool raw) {
    CUdeviceptr kept = 0;
    int sum = 0;
    begin();
    say("alloc %d", CU(cuMemAlloc_v2)(&kept, 5 * MIB));
    struct crowd *crowd = crowd_start(-1);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = raw ? raw_fork() : fork();
        if (child == 0)
            be_a_child(kept);
        sum += status_of(child);
    }
    crowd_stop(crowd, "while children come and go");
    say("%d failures of %d children", sum, CHILDREN);
    at("after the children");
    say("free %d", CU(cuMemFree_v2)(kept));
    say("end");
    return 0;
}

static int tell_fork(char **arguments) {
    return forks(arguments[0] && strcmp(arguments[0], "raw") == 0);
}

static char self[4096];

static void find_self(void) {
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    must(n > 0, "readlink");
}

// The program that other stories start: it uses the GPU, with a lease of its own.
static int tell_brief(char **arguments) {
    CUdeviceptr p = 0;
    (void)arguments;
    begin();
    CUresult r = CU(cuMemAlloc_v2)(&p, MIB);
    return r ? 9 : (int)CU(cuMemFree_v2)(p);
}

static int by_vfork(char *const *argv) {
    pid_t child = vfork(); // NOLINT(clang-analyzer-security.insecureAPI.vfork): programs do
    if (child == 0) {
        execv(argv[0], argv);
        _exit(127);
    }
    return status_of(child);
}

static int by_spawn(char *const *argv) {
    pid_t child = 0;
    must(posix_spawn(&child, argv[0], NULL, NULL, argv, environ) == 0, "posix_spawn");
    return status_of(child);
}

static int tell_spawn(char **arguments) {
    CUdeviceptr kept = 0;
    int sum = 0;
    (void)arguments;
    find_self();
    char brief[] = "brief";
    char *const argv[] = {self, brief, NULL};
    begin();
    say("alloc %d", CU(cuMemAlloc_v2)(&kept, 5 * MIB));
    struct crowd *crowd = crowd_start(-1);
    for (int i = 0; i < CHILDREN / 2; i++)
        sum += by_vfork(argv) + by_spawn(argv);
    crowd_stop(crowd, "while programs are started");
    say("their statuses: %d", sum);
    at("after the programs");
    say("free %d", CU(cuMemFree_v2)(kept));
    say("end");
    return 0;
}

static int tell_became(char **arguments) {
    CUdeviceptr p = 0;
    (void)arguments;
    begin();
    say("alloc after exec: %d", CU(cuMemAlloc_v2)(&p, 3 * MIB));
    at("another program");
    say("free %d", CU(cuMemFree_v2)(p));
    say("end");
    return 0;
}

// Executes a program while other threads allocate.
static int tell_exec(char **arguments) {
    CUdeviceptr kept = 0;
    (void)arguments;
    find_self();
    begin();
    say("alloc %d", CU(cuMemAlloc_v2)(&kept, 5 * MIB));
    at("before");
    crowd_start(-1);
    char became[] = "became";
    char *const argv[] = {self, became, NULL};
    execv(self, argv);
    must(false, "execv");
    return 1;
}

static void close_all(void) {
    for (int fd = 0; fd < 4096; fd++)
        close(fd);
}

static void pause_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

// Becomes a daemon as daemon(3) does, and closes all descriptors, even stdin. The test makes the
// files FOLDER/take and FOLDER/end, and reads the result from FOLDER/result.
static void be_a_daemon(const char *folder) {
    CUdeviceptr p = 0, q = 0;
    must(chdir(folder) == 0, "chdir");
    umask(0077);
    close_all();
    CUresult r = CU(cuInit)(0);
    CUcontext context = NULL;
    if (r == 0)
        r = CU(cuCtxCreate_v2)(&context, 0, 0);
    if (r == 0)
        r = CU(cuMemAlloc_v2)(&p, 5 * MIB);
    close_all(); // closes everything a second time, as some daemons do
    while (access("take", F_OK) != 0)
        pause_ms(5);
    CUresult r2 = CU(cuMemAlloc_v2)(&q, 300 * MIB);
    mkdir("taken", 0700);
    while (access("end", F_OK) != 0)
        pause_ms(5);
    CUresult r3 = CU(cuMemFree_v2)(p);
    int fd = open("unfinished", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    char line[64];
    int n = snprintf(line, sizeof line, "%d %d %d descriptor %d\n", r, r2, r3, fd);
    if (write(fd, line, (size_t)n) != n || rename("unfinished", "result") != 0)
        _exit(1);
    _exit(0);
}

static int tell_daemon(char **arguments) {
    must(arguments[0] != NULL, "a folder is missing");
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child > 0)
        _exit(0);
    must(setsid() > 0, "setsid");
    child = fork();
    must(child >= 0, "fork");
    if (child > 0)
        _exit(0);
    alarm(600); // in case that the test does not end it
    be_a_daemon(arguments[0]);
    return 0;
}

// A program whose grandchild survives it and its child, with the device open.
static int tell_heirs(char **arguments) {
    CUdeviceptr p = 0;
    int line[2];
    char c;
    (void)arguments;
    begin();
    say("alloc %d", CU(cuMemAlloc_v2)(&p, 500 * MIB));
    must(pipe(line) == 0, "pipe");
    if (fork() == 0) {
        pid_t heir = raw_fork();
        if (heir == 0) {
            close(line[1]);
            while (read(0, &c, 1) > 0)
                ; // waits until stdin ends
            _exit(0);
        }
        say("heir %d", (int)heir);
        _exit(0);
    }
    close(line[1]);
    must(read(line[0], &c, 1) == 0, "read"); // the child and the grandchild have closed the pipe
    at("the heir is there");
    return 0;
}

const struct story births[] = {
    {"fork", tell_fork}, {"brief", tell_brief},   {"spawn", tell_spawn}, {"became", tell_became},
    {"exec", tell_exec}, {"daemon", tell_daemon}, {"heirs", tell_heirs}, {NULL, NULL},
};
