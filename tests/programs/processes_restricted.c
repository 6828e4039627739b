// SPDX-License-Identifier: Apache-2.0
// Stories of a process that gives up descriptors, rights, its view of the files, or system calls,
// while it uses the GPU.
#include "processes.h"

#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#define CLOSE_UNSHARE (1U << 1)
#define CLOSE_ON_EXEC (1U << 2)
#define HIGHEST 4096

// Each story does this before and after the restriction: it holds memory, and several threads
// allocate so much that each must ask the daemon.
static CUdeviceptr kept;

static void before(void) {
    begin();
    say("alloc %d", CU(cuMemAlloc_v2)(&kept, 5 * MIB));
    at("before");
}

static int after(const char *what) {
    crowd_take(what);
    at(what);
    crowd_give(what);
    crowd_stop(crowd_start(20), what);
    say("free %d", CU(cuMemFree_v2)(kept));
    at("all given back");
    say("end");
    return 0;
}

static int tell_plain(char **arguments) {
    (void)arguments;
    before();
    return after("within");
}

static void close_from_3(unsigned flags) {
    long r = syscall(SYS_close_range, 3U, ~0U, flags);
    if (r != 0 && errno == ENOSYS) // the kernel is older than Linux 5.9
        for (int fd = 3; fd < HIGHEST; fd++)
            close(fd);
    else
        must(r == 0, "close_range");
}

static int tell_closerange(char **arguments) {
    (void)arguments;
    before();
    close_from_3(CLOSE_ON_EXEC);
    crowd_take("close on exec");
    crowd_give("close on exec");
    close_from_3(CLOSE_UNSHARE);
    crowd_take("unshared");
    at("unshared");
    crowd_give("unshared");
    close_from_3(0);
    return after("all closed");
}

// Replaces the descriptors that the GPU opened by sockets of the program that accept every message.
static int ends[HIGHEST][2];

static bool is_open(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0;
}

static void take_over(const bool *was_open) {
    for (int fd = 3; fd < HIGHEST; fd++) {
        int pair[2];
        ends[fd][0] = -1;
        if (was_open[fd] || !is_open(fd))
            continue;
        must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "socketpair");
        // a high number, which the loop does not reach
        ends[fd][0] = dup2(pair[0], HIGHEST + fd);
        must(ends[fd][0] >= 0 && dup2(pair[1], fd) == fd, "dup2");
        close(pair[0]);
        if (pair[1] != fd)
            close(pair[1]);
        ends[fd][1] = fd;
    }
}

static int tell_reused(char **arguments) {
    static bool was_open[HIGHEST];
    int written = 0, closed = 0;
    (void)arguments;
    for (int fd = 3; fd < HIGHEST; fd++)
        was_open[fd] = is_open(fd);
    before();
    crowd_take("others' numbers");
    crowd_give("others' numbers");
    take_over(was_open);
    crowd_take("own sockets");
    at("own sockets");
    crowd_give("own sockets");
    crowd_stop(crowd_start(20), "own sockets");
    for (int fd = 3; fd < HIGHEST; fd++) {
        char c;
        if (was_open[fd] || ends[fd][0] < 0)
            continue;
        ssize_t n = recv(ends[fd][0], &c, 1, MSG_DONTWAIT);
        written += n > 0;
        closed += n == 0 || (n < 0 && errno != EAGAIN);
    }
    say("%d of its sockets were written into, %d closed", written, closed);
    return after("own sockets");
}

static int tell_nofiles(char **arguments) {
    const struct rlimit none = {0, 0};
    (void)arguments;
    before();
    must(setrlimit(RLIMIT_NOFILE, &none) == 0, "setrlimit");
    return after("without a descriptor more");
}

static int tell_setuid(char **arguments) {
    (void)arguments;
    before();
    must(setgroups(0, NULL) == 0 && setresgid(65534, 65534, 65534) == 0, "setresgid");
    must(setresuid(65534, 65534, 65534) == 0, "setresuid");
    return after("as somebody else");
}

static int tell_chroot(char **arguments) {
    must(arguments[0] != NULL, "a folder is missing");
    before();
    must(mkdir(arguments[0], 0755) == 0 || errno == EEXIST, "mkdir");
    must(chroot(arguments[0]) == 0 && chdir("/") == 0, "chroot");
    return after("in another root");
}

// Enters a mount namespace in which the folder of the machine is hidden.
static int tell_unshare(char **arguments) {
    must(arguments[0] != NULL, "a folder is missing");
    before();
    must(unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET) == 0, "unshare");
    must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "mount private");
    must(mount("none", arguments[0], "tmpfs", 0, NULL) == 0, "mount");
    return after("in other namespaces");
}

static void forbid_sockets(void) {
#define FORBID(call)                                                                               \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1),                                             \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES)
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        FORBID(SYS_socket),
        FORBID(SYS_connect),
        FORBID(SYS_socketpair),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "seccomp");
}

static int tell_seccomp(char **arguments) {
    bool early = arguments[0] && strcmp(arguments[0], "early") == 0;
    if (early)
        forbid_sockets();
    before();
    if (!early)
        forbid_sockets();
    return after("without sockets");
}

const struct story restrictions[] = {
    {"plain", tell_plain},     {"closerange", tell_closerange}, {"reused", tell_reused},
    {"setuid", tell_setuid},   {"nofiles", tell_nofiles},       {"chroot", tell_chroot},
    {"unshare", tell_unshare}, {"seccomp", tell_seccomp},       {NULL, NULL},
};
