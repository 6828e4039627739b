// SPDX-License-Identifier: Apache-2.0
// This file has the functions of link.h: the messages of a client, sent and received with the
// shim's system calls. ask.c and crowd.c use them.
#include "link.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

void die(const char *why) {
    perror(why);
    exit(1);
}

int link_connect(const char *path) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        die("connect");
    return fd;
}

struct message {
    struct ga_wire_header header;
    uint8_t body[sizeof(struct ga_wire_alloc_reply)];
};

// Sends a request and returns the descriptor that came with the reply, or -1.
static int exchange(int fd, uint16_t type, const void *body, size_t size, void *reply,
                    size_t reply_size) {
    static uint64_t request;
    request++;
    struct message m = {.header = {.magic = GA_MAGIC,
                                   .version = GA_VERSION,
                                   .type = type,
                                   .length = (uint32_t)(sizeof m.header + size),

                                   .request = request}};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    memcpy(m.body, body, size);
    struct iovec iov = {&m, sizeof m.header + size};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (sendmsg(fd, &msg, MSG_NOSIGNAL) < 0)
        die("sendmsg");
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (ppoll(&p, 1, NULL, NULL) < 0)
        die("ppoll");
    iov.iov_len = sizeof m;
    msg.msg_control = &control;
    msg.msg_controllen = sizeof control;
    ssize_t n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
    if (n < (ssize_t)(sizeof m.header + reply_size) || m.header.status != GA_STATUS_OK) {
        fprintf(stderr, "request %u: %zd bytes, status %u %.300s\n", type, n, m.header.status,
                (const char *)m.body);
        exit(1);
    }
    memcpy(reply, m.body, reply_size);
    int came = -1;
    if (msg.msg_controllen != 0)
        memcpy(&came, CMSG_DATA(&control.head), sizeof came);
    return came;
}

void link_exchange(int fd, uint16_t type, const void *body, size_t size, void *reply,
                   size_t reply_size) {
    exchange(fd, type, body, size, reply, reply_size);
}

void link_hello(int fd) {
    struct ga_wire_hello_request hello = {.kind = GA_KIND_SHIM, .memory = GA_NO_LIMIT};
    struct ga_wire_hello_reply reply;
    int page = exchange(fd, GA_TYPE_HELLO, &hello, sizeof hello, &reply, sizeof reply);
    if (mmap(NULL, GA_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0) == MAP_FAILED)
        die("the lease page");
}

uint32_t link_attach(int fd, const char *uuid) {
    struct ga_wire_attach_request attach = {{0}};
    struct ga_wire_attach_reply reply;
    size_t digits = 0;
    for (const char *c = strchr(uuid, '-'); c && *c && digits < 2 * sizeof attach.device; c++) {
        static const char hex[] = "0123456789abcdef";
        const char *digit = strchr(hex, *c);
        if (digit) {
            attach.device[digits / 2] |= (uint8_t)((digit - hex) << (digits % 2 ? 0 : 4));
            digits++;
        }
    }
    link_exchange(fd, GA_TYPE_ATTACH, &attach, sizeof attach, &reply, sizeof reply);
    return reply.slot;
}
