// SPDX-License-Identifier: Apache-2.0
// floor SOCKET DAEMON: the least that a daemon of this protocol takes for a program under the
// library. It is a server at SOCKET that passes the messages of its first program on to the daemon
// at DAEMON, and records each reply and what the lease page holds at that moment. Every later
// program gets the same replies and the same page; only the request's number differs. All programs
// must send the same messages in the same order, and each message must have a reply.
//
// The server has one thread (two are no faster), no log, and allocates nothing. It makes the system
// calls that a daemon in any language must make for a program: it accepts the connection, asks the
// kernel for the peer and its pidfd, reads the facts of the process in /proc, makes, seals and maps
// the lease page, receives and sends each message, and closes everything when the pidfd says that
// the process is dead. It makes no decision, keeps no account, and asks no driver.
//
// It prints "ready", and answers each line on stdin, as soon as no program is left, with the number
// of programs that got every reply and have ended since the previous line.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "link.h"

#ifndef SO_PEERPIDFD // Linux 6.5
#define SO_PEERPIDFD 77
#endif
#ifndef MFD_NOEXEC_SEAL // Linux 6.3
#define MFD_NOEXEC_SEAL 8u
#endif

#define STEPS 64         // the most messages of one program
#define PROGRAMS 65536   // the numbers of their pidfds are below
#define EVENTS 64        // the most that one call returns
#define CONNECTIONS 4096 // the most that wait for accept

union message {
    struct ga_wire_header header;
    uint8_t bytes[GA_MAX_REQUEST]; // no reply to the library is longer than that either
};

// A reply of the daemon, and the page as it was when the reply had come.
static struct step {
    union message reply;
    size_t size;
    bool has_page; // the page's descriptor comes with it
    struct ga_wire_page page;
} steps[STEPS];
static unsigned step_count;

// By its pidfd.
static struct program {
    int socket; // -1: closed
    int page_fd;
    struct ga_wire_page *page;
    unsigned step; // the next
} programs[PROGRAMS];
static unsigned living, served;

// What an event of epoll is about: twice the number of a program's pidfd, and one more where it is
// the program's socket. The first two are no program's, since descriptor 0 is the standard input.
enum { OF_LISTENER, OF_STDIN };

static int poller;

static _Noreturn void stop_at(unsigned step, const char *what) {
    fprintf(stderr, "floor: message %u %s\n", step, what);
    exit(1);
}

union control {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
};

static ssize_t receive(int socket, union message *to, int *came) {
    union control control;
    struct iovec iov = {to, sizeof *to};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    ssize_t n = recvmsg(socket, &m, MSG_CMSG_CLOEXEC);
    *came = -1;
    if (n > 0 && m.msg_controllen != 0)
        memcpy(came, CMSG_DATA(&control.head), sizeof *came);
    return n;
}

static void send_reply(int socket, struct step *s, int page_fd) {
    union control control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec iov = {&s->reply, s->size};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (s->has_page) {
        memcpy(CMSG_DATA(&control.head), &page_fd, sizeof page_fd);
        m.msg_control = &control;
        m.msg_controllen = sizeof control;
    }
    if (sendmsg(socket, &m, MSG_NOSIGNAL) < 0)
        die("sendmsg");
}

static struct ga_wire_page *map_page(int fd) {
    void *p = mmap(NULL, GA_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (p == MAP_FAILED)
        die("the lease page");
    return p;
}

// Stands between the first program and the daemon, to which this process is the client.
static void record(int listener, const char *path) {
    union message request;
    const struct ga_wire_page *page = NULL;
    int daemon = link_connect(path), program = accept4(listener, NULL, NULL, SOCK_CLOEXEC), fd;
    ssize_t n;
    if (program < 0)
        die("accept");
    while ((n = receive(program, &request, &fd)) > 0) {
        if (step_count == STEPS)
            stop_at(step_count, "is one too many");
        struct step *s = &steps[step_count++];
        if (send(daemon, &request, (size_t)n, MSG_NOSIGNAL) < 0)
            die("the daemon");
        n = receive(daemon, &s->reply, &fd);
        if (n < (ssize_t)sizeof s->reply.header || s->reply.header.status != GA_STATUS_OK)
            stop_at(step_count, "is not granted at once");
        s->size = (size_t)n;
        s->has_page = fd >= 0;
        if (s->has_page)
            page = map_page(fd);
        if (page)
            s->page = *page;
        send_reply(program, s, fd);
        if (s->has_page)
            close(fd);
    }
    link_exchange(daemon, GA_TYPE_BYE, "", 0, request.bytes, 0);
    close(daemon);
    close(program);
}

static void watch(int fd, uint64_t what) {
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = what};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e) != 0)
        die("epoll_ctl");
}

// The pidfd says last that the process has not died meanwhile and left its number to another.
static void read_facts(int pid, int pidfd) {
    static const char *const files[] = {"stat", "cmdline", "cgroup", "status"};
    char path[64], text[2048];
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "/proc/%d/%s", pid, files[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || read(fd, text, sizeof text) < 0)
            die(path);
        close(fd);
    }
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    struct pollfd dead = {.fd = pidfd, .events = POLLIN};
    if (readlink(path, text, sizeof text) < 0 || poll(&dead, 1, 0) != 0)
        die(path);
}

static int make_page(void) {
    int fd = memfd_create("gpuarb-lease", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 || ftruncate(fd, GA_PAGE_SIZE) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW) != 0)
        die("memfd");
    return fd;
}

static void answer(struct program *p) {
    union message request;
    int fd;
    if (p->socket < 0)
        return;
    ssize_t n = receive(p->socket, &request, &fd);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        close(p->socket);
        p->socket = -1;
        return;
    }
    struct step *s = &steps[p->step++];
    if (p->step > step_count || s->reply.header.type != (request.header.type | GA_REPLY_BIT))
        stop_at(p->step, "is another than that of the first program");
    s->reply.header.request = request.header.request;
    *p->page = s->page;
    send_reply(p->socket, s, p->page_fd);
}

static void take(int listener) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    int pidfd, socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0 || getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        die("accept");
    size = sizeof pidfd;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) != 0 || pidfd >= PROGRAMS)
        die("pidfd");
    read_facts(peer.pid, pidfd);
    struct program *p = &programs[pidfd];
    *p = (struct program){.socket = socket, .page_fd = make_page()};
    p->page = map_page(p->page_fd);
    watch(socket, 2 * (uint64_t)pidfd + 1);
    watch(pidfd, 2 * (uint64_t)pidfd);
    living++;
    answer(p); // it asks as soon as it is connected
}

static void bury(int pidfd) {
    struct program *p = &programs[pidfd];
    if (p->socket >= 0)
        close(p->socket);
    p->socket = -1;
    munmap(p->page, GA_PAGE_SIZE);
    close(p->page_fd);
    close(pidfd);
    living--;
    served += p->step == step_count;
}

static void read_line(void) {
    char line[64];
    if (read(0, line, sizeof line) <= 0)
        exit(0);
}

static _Noreturn void serve(int listener) {
    struct epoll_event events[EVENTS];
    poller = epoll_create1(EPOLL_CLOEXEC);
    watch(listener, OF_LISTENER);
    watch(0, OF_STDIN);
    for (bool asked = false;;) {
        int n = epoll_wait(poller, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            uint64_t what = events[i].data.u64;
            if (what == OF_LISTENER) {
                take(listener);
            } else if (what == OF_STDIN) {
                read_line();
                asked = true;
            } else if (what % 2 == 1) {
                answer(&programs[what / 2]);
            } else {
                bury((int)(what / 2));
            }
        }
        if (asked && living == 0) {
            printf("%u\n", served);
            fflush(stdout);
            asked = false;
            served = 0;
        }
    }
}

static int listen_at(const char *path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, CONNECTIONS) != 0)
        die(path);
    return fd;
}

int main(int argc, char **argv) {
    struct rlimit files;
    if (argc != 3)
        return 2;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int listener = listen_at(argv[1]);
    puts("ready");
    fflush(stdout);
    record(listener, argv[2]);
    serve(listener);
}
