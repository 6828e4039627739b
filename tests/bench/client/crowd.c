// SPDX-License-Identifier: Apache-2.0
// crowd SOCKET LEASES UUID…: opens the leases of many idle clients. Each process opens as many
// sessions as the daemon allows, and each session a lease on every named device, until there are
// LEASES leases. It says "ready", and ends with its standard input.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "link.h"

#define SESSIONS 8 // the daemon's bound for one process

static void live(char **argv, int devices, long leases, int ready) {
    char c = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (leases > 0) {
        int fd = link_connect(argv[1]);
        link_hello(fd);
        for (int i = 0; i < devices && leases > 0; i++, leases--)
            link_attach(fd, argv[3 + i]);
    }
    if (write(ready, &c, 1) != 1)
        die("write");
    _exit(read(0, &c, 1) > 0);
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    int devices = argc - 3, ready[2];
    long each = (long)SESSIONS * devices, processes = 0;
    if (pipe(ready) != 0)
        die("pipe");
    for (long left = strtol(argv[2], NULL, 10); left > 0; left -= each, processes++) {
        pid_t pid = fork();
        if (pid < 0)
            die("fork");
        if (pid == 0)
            live(argv, devices, left < each ? left : each, ready[1]);
    }
    close(ready[1]);
    for (char c; processes > 0; processes--)
        if (read(ready[0], &c, 1) != 1)
            die("a client ended");
    printf("ready\n");
    fflush(stdout);
    while (wait(NULL) > 0)
        ;
    return 0;
}
