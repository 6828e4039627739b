// SPDX-License-Identifier: Apache-2.0
// Runs cshim/test/peer.c, the scripted daemon, as a child process of a C test.
#ifndef GA_TEST_DAEMON_H
#define GA_TEST_DAEMON_H

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

struct test_daemon {
    pid_t pid;
    FILE *to, *from;
};

// Starts the peer. Options are pairs of name and value; NULL after the last.
static inline struct test_daemon test_daemon_start(const char *path, const char *socket,
                                                   const char *const options[]) {
    const char *argv[16] = {path, socket};
    int in[2], out[2];
    struct test_daemon d;
    char line[64];
    for (size_t i = 0; options[i]; i++)
        argv[2 + i] = options[i];
    CHECK(pipe(in) == 0 && pipe(out) == 0);
    d.pid = fork();
    if (d.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        close(out[0]);
        execv(path, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    d.to = fdopen(in[1], "w");
    d.from = fdopen(out[0], "r");
    CHECK(d.to && d.from && fgets(line, sizeof line, d.from) && strcmp(line, "listening\n") == 0);
    return d;
}

static inline void test_daemon_stop(struct test_daemon *d) {
    kill(d->pid, SIGKILL);
    waitpid(d->pid, NULL, 0);
    fclose(d->to);
    fclose(d->from);
}

static inline void test_daemon_say(struct test_daemon *d, const char *line) {
    fprintf(d->to, "%s\n", line);
    fflush(d->to);
}

struct test_state {
    unsigned long long granted, used; // sums over all leases, in bytes
    long long streams, contexts;
    size_t waiters;
};

static inline struct test_state test_daemon_show(struct test_daemon *d) {
    struct test_state s = {0};
    char line[128];
    test_daemon_say(d, "show");
    while (fgets(line, sizeof line, d->from)) {
        unsigned long long granted, used;
        long long streams, contexts;
        if (strcmp(line, "end\n") == 0)
            return s;
        if (sscanf(line, "lease %*d %*u %llu %llu %lld %lld", &granted, &used, &streams,
                   &contexts) == 4) {
            s.granted += granted;
            s.used += used;
            s.streams += streams;
            s.contexts += contexts;
        }
        sscanf(line, "waiters %zu", &s.waiters);
    }
    CHECK(!"the peer has ended");
    return s;
}

// Waits until `waiters` requests wait. The test's own alarm bounds this.
static inline void test_daemon_waiters(struct test_daemon *d, size_t waiters) {
    while (test_daemon_show(d).waiters != waiters)
        usleep(1000);
}

#endif
