// SPDX-License-Identifier: Apache-2.0
// ask SOCKET UUID: measures how long a request for bytes takes, and how long a bare echo of that
// size over such a socket takes. It says "ready". For each line with a count on stdin it sends that
// many requests and prints nanoseconds: median, 99th percentile and mean of the daemon, and then of
// the echo. Requests and echoes alternate, so that both see equal conditions. The program frees
// nothing, so credit covers no request.
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <signal.h>

#include "link.h"

#define TURN 32

static int echo_fd;
static uint32_t slot;

// The child answers each message with a message of the size of a reply.
static void start_echo(void) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        die("socketpair");
    echo_fd = pair[0];
    if (fork() != 0) {
        close(pair[1]);
        return;
    }
    struct {
        struct ga_wire_header header;
        struct ga_wire_alloc_reply body;
    } m = {.header = {.magic = GA_MAGIC}};
    close(pair[0]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (recv(pair[1], &m, sizeof m, 0) > 0)
        if (send(pair[1], &m, sizeof m, MSG_NOSIGNAL) < 0)
            break;
    _exit(0);
}

static void ask(int fd) {
    struct ga_wire_alloc_request request = {.slot = slot, .kind = GA_MEMORY_PLAIN, .bytes = 4096};
    struct ga_wire_alloc_reply reply;
    link_exchange(fd, GA_TYPE_ALLOC, &request, sizeof request, &reply, sizeof reply);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void measure(int fd, uint64_t *took, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint64_t began = now();
        ask(fd);
        took[i] = now() - began;
    }
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void print(uint64_t *took, size_t count, char end) {
    uint64_t sum = 0;
    qsort(took, count, sizeof *took, by_value);
    for (size_t i = 0; i < count; i++)
        sum += took[i];
    printf("%ju %ju %ju%c", (uintmax_t)took[count / 2], (uintmax_t)took[count * 99 / 100],
           (uintmax_t)(sum / count), end);
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    start_echo();
    int fd = link_connect(argv[1]);
    link_hello(fd);
    slot = link_attach(fd, argv[2]);
    ask(fd);
    printf("ready\n");
    fflush(stdout);
    size_t count;
    while (scanf("%zu", &count) == 1 && count > 0) {
        uint64_t *daemon = calloc(count, sizeof *daemon), *echo = calloc(count, sizeof *echo);
        if (!daemon || !echo)
            die("memory");
        for (size_t i = 0, n; i < count; i += n) {
            n = count - i < TURN ? count - i : TURN;
            measure(fd, daemon + i, n);
            measure(echo_fd, echo + i, n);
        }
        print(daemon, count, ' ');
        print(echo, count, '\n');
        fflush(stdout);
        free(daemon);
        free(echo);
    }
    return 0;
}
