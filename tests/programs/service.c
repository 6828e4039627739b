// SPDX-License-Identifier: Apache-2.0
// A service that follows systemd's protocols. It takes its listening socket from LISTEN_FDS if
// LISTEN_PID is its own PID, reports on NOTIFY_SOCKET that it is ready, and resets the watchdog if
// WATCHDOG_PID is its own PID. It answers each connection with a line:
//
//   pid PID ready yes|no watchdog yes|no pipe ignored|default
//
// If LISTEN_PID names another process, it has no socket and exits with status 3.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { first_socket = 3 };

// is_own reports whether a variable has the PID of this process.
static bool is_own(const char *name) {
    const char *value = getenv(name);
    return value != NULL && strtol(value, NULL, 10) == (long)getpid();
}

// notify sends a state to systemd, which may ignore it. Returns whether it was sent.
static bool notify(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (path == NULL || strlen(path) >= sizeof to.sun_path) {
        return false;
    }
    memcpy(to.sun_path, path, strlen(path));
    if (path[0] == '@') {
        to.sun_path[0] = '\0';
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    ssize_t sent = sendto(fd, state, strlen(state), 0, (struct sockaddr *)&to, size);
    close(fd);
    return sent == (ssize_t)strlen(state);
}

static void answer(bool ready, bool watched) {
    int peer = accept(first_socket, NULL, NULL);
    if (peer < 0) {
        return;
    }
    struct sigaction pipe;
    sigaction(SIGPIPE, NULL, &pipe);
    dprintf(peer, "pid %d ready %s watchdog %s pipe %s\n", (int)getpid(), ready ? "yes" : "no",
            watched ? "yes" : "no", pipe.sa_handler == SIG_IGN ? "ignored" : "default");
    close(peer);
}

int main(void) {
    const char *count = getenv("LISTEN_FDS"), *most = getenv("WATCHDOG_USEC");
    if (!is_own("LISTEN_PID") || count == NULL || strtol(count, NULL, 10) != 1) {
        fprintf(stderr, "service: no socket is meant for process %d\n", (int)getpid());
        return 3;
    }
    bool watched = is_own("WATCHDOG_PID") && most != NULL;
    int wait = watched ? (int)(strtol(most, NULL, 10) / 4000) : -1;
    bool ready = notify("READY=1");
    for (struct pollfd ear = {.fd = first_socket, .events = POLLIN};;) {
        if (poll(&ear, 1, wait) > 0) {
            answer(ready, watched);
        }
        if (watched) {
            notify("WATCHDOG=1");
        }
    }
}
