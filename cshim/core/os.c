// SPDX-License-Identifier: Apache-2.0
// System calls of os.h, and the waits on descriptors.
#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

#define CALL0(nr) ga_os_call(nr, 0, 0, 0, 0, 0, 0)
#define CALL1(nr, a) ga_os_call(nr, (long)(a), 0, 0, 0, 0, 0)
#define CALL2(nr, a, b) ga_os_call(nr, (long)(a), (long)(b), 0, 0, 0, 0)
#define CALL3(nr, a, b, c) ga_os_call(nr, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define CALL4(nr, a, b, c, d) ga_os_call(nr, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define CALL6(nr, a, b, c, d, e, f)                                                                \
    ga_os_call(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static bool is_error(long ret) {
    return ret < 0 && ret > -4096;
}

static void *map(size_t size, int flags) {
    flags |= MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
#ifdef __SANITIZE_THREAD__ // this sanitizer must see map and unmap, or takes later mappings for the
                           // earlier memory
    void *seen = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    return seen == MAP_FAILED ? NULL : seen;
#else
    long at = CALL6(SYS_mmap, 0, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    return is_error(at) ? NULL : (void *)at;
#endif
}

void *ga_os_map(size_t size) {
    return map(size, 0);
}

void *ga_os_map_now(size_t size) {
    return map(size, MAP_POPULATE);
}

void *ga_os_map_page(int fd, size_t size) {
    long at = CALL6(SYS_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (is_error(at))
        return NULL;
    CALL3(SYS_madvise, at, size, MADV_DONTFORK);
    return (void *)at;
}

void ga_os_unmap(void *at, size_t size) {
#ifdef __SANITIZE_THREAD__
    munmap(at, size);
#else
    CALL2(SYS_munmap, at, size);
#endif
}

bool ga_os_wipe_on_fork(void *at, size_t size) {
    return CALL3(SYS_madvise, at, size, MADV_WIPEONFORK) == 0;
}

void ga_os_huge_pages(void *at, size_t size) {
    CALL3(SYS_madvise, at, size, MADV_HUGEPAGE);
}

void ga_os_barrier_of_all_threads(void) {
    enum { PRIVATE_EXPEDITED = 1 << 3, REGISTER_PRIVATE_EXPEDITED = 1 << 4 };
    if (CALL3(SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
        CALL3(SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) == 0)
        return;
    // Linux before 4.14: store buffers drain by themselves in much less time.
    ga_os_sleep_us(2000);
}

int ga_os_pid(void) {
    return (int)CALL0(SYS_getpid);
}

int ga_os_tid(void) {
    return (int)CALL0(SYS_gettid);
}

// Reports whether the main thread has ended. It keeps its ID while other threads run; the kernel
// shows its state as dead.
static bool first_has_ended(void) {
    char text[64]; // "PID (NAME) STATE", and then only numbers
    int fd = ga_os_open_read("/proc/self/stat");
    if (fd < 0)
        return false;
    long n = ga_os_read(fd, text, sizeof text);
    ga_os_close(fd);
    while (n > 2 && text[n - 3] != ')')
        n--;
    return n > 2 && (text[n - 1] == 'Z' || text[n - 1] == 'X');
}

bool ga_os_thread_lives(int pid, int tid) {
    return CALL3(SYS_tgkill, pid, tid, 0) != -ESRCH && (tid != pid || !first_has_ended());
}

static uint64_t to_ms(const struct timespec *t) {
    return (uint64_t)t->tv_sec * 1000 + (uint64_t)t->tv_nsec / 1000000;
}

uint64_t ga_os_now_ms(void) {
    struct timespec t = {0, 0};
    CALL2(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    return to_ms(&t);
}

static ga_os_clock *_Atomic vdso_clock;

void ga_os_use_clock(ga_os_clock *clock) {
    atomic_store(&vdso_clock, clock);
}

// Must be cheap, because each intercepted call of a program without a daemon calls it.
uint64_t ga_os_coarse_ms(void) {
    struct timespec t = {0, 0};
    ga_os_clock *clock = atomic_load_explicit(&vdso_clock, memory_order_relaxed);
    if (!clock || clock(CLOCK_MONOTONIC_COARSE, &t) != 0)
        CALL2(SYS_clock_gettime, CLOCK_MONOTONIC_COARSE, &t);
    return to_ms(&t);
}

void ga_os_sleep_us(uint64_t us) {
    struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    CALL2(SYS_nanosleep, &t, NULL);
}

uint64_t ga_os_block_signals(void) {
    enum { CANCEL = 32, SET_ID = 33 };
    uint64_t all = ~(1ull << (CANCEL - 1) | 1ull << (SET_ID - 1));
    uint64_t blocked = 0;
    CALL4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &blocked, sizeof all);
    return blocked;
}

void ga_os_restore_signals(uint64_t blocked) {
    CALL4(SYS_rt_sigprocmask, SIG_SETMASK, &blocked, NULL, sizeof blocked);
}

void ga_os_name_thread(const char *name) {
    CALL2(SYS_prctl, PR_SET_NAME, name);
}

void ga_os_yield(void) {
    CALL0(SYS_sched_yield);
}

void ga_os_wait(_Atomic uint32_t *word, uint32_t value, int timeout_ms) {
    struct timespec t = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000};
    CALL4(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, value, timeout_ms < 0 ? NULL : &t);
}

void ga_os_wake(_Atomic uint32_t *word, int threads) {
    CALL3(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, threads);
}

// Moves a descriptor to a high number, because programs, above all shells, expect the low ones to
// be free.
int ga_os_raise_fd(int fd) {
    static const int floors[] = {700, 300, 100, 40};
    for (size_t i = 0; i < sizeof floors / sizeof floors[0]; i++) {
        long high = CALL3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, floors[i]);
        if (!is_error(high)) {
            ga_os_close(fd);
            return (int)high;
        }
    }
    return fd;
}

int ga_os_connect(const char *path) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t length = ga_os_length(path);
    if (length == 0 || length >= sizeof to.sun_path)
        return -ENAMETOOLONG;
    ga_os_copy(to.sun_path, path, length);
    long fd = CALL3(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (is_error(fd))
        return (int)fd;
    // A full backlog must not stop the program for ever.
    struct timeval limit = {2, 0};
    ga_os_call(SYS_setsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, (long)&limit, sizeof limit, 0);
    long ret;
    do {
        ret = CALL3(SYS_connect, fd, &to, offsetof(struct sockaddr_un, sun_path) + length + 1);
    } while (ret == -EINTR);
    if (is_error(ret)) {
        ga_os_close((int)fd);
        return (int)ret;
    }
    return ga_os_raise_fd((int)fd);
}

#define SELECTABLE 4096

// Waits for one descriptor with select, because poll fails if the process may open no descriptors
// (RLIMIT_NOFILE is 0).
static long select_one(int fd, bool out, const struct timespec *timeout) {
    uint64_t set[SELECTABLE / 64] = {0};
    struct timespec left = timeout ? *timeout : (struct timespec){0, 0}; // the kernel changes it
    if (fd < 0 || fd >= SELECTABLE)
        return -EINVAL;
    set[fd / 64] = 1ull << fd % 64;
    return CALL6(SYS_pselect6, fd + 1, out ? NULL : set, out ? set : NULL, NULL,
                 timeout ? &left : NULL, NULL);
}

// Waits until fd can be read from or written to; 0 on time-out. A signal does not end the wait.
static long wait_for(int fd, short events, int timeout_ms) {
    uint64_t end = timeout_ms < 0 ? 0 : ga_os_now_ms() + (uint64_t)timeout_ms;
    int left = timeout_ms;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        struct timespec t = {left / 1000, (long)(left % 1000) * 1000000};
        const struct timespec *limit = timeout_ms < 0 ? NULL : &t;
        long n = ga_os_call(SYS_ppoll, (long)&p, 1, (long)limit, 0, 0, 0);
        if (n == -EINVAL)
            n = select_one(fd, events == POLLOUT, limit);
        if (n != -EINTR)
            return n;
        if (timeout_ms >= 0) {
            uint64_t now = ga_os_now_ms();
            left = now >= end ? 0 : (int)(end - now);
        }
    }
}

// Reads the next byte of a connection without removing it. Returns 1; 0: the connection has ended;
// −EAGAIN: no byte yet; or another error.
static long peek(int fd) {
    char c;
    struct iovec iov = {&c, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    return CALL3(SYS_recvmsg, fd, &m, MSG_PEEK | MSG_DONTWAIT);
}

bool ga_os_hung_up(int fd) {
    long n = peek(fd);
    return n == 0 || (is_error(n) && n != -EAGAIN); // it has ended, or is not a connection
}

bool ga_os_is_quiet(int fd) {
    return peek(fd) == -EAGAIN;
}

union control {
    struct cmsghdr head;
    char room[CMSG_SPACE(4 * sizeof(int))];
};

int ga_os_send(int socket, const void *message, size_t size, int fd, int timeout_ms) {
    struct iovec iov = {(void *)(uintptr_t)message, size};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    union control control;
    ga_os_zero(&control, sizeof control);
    if (fd >= 0) {
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(sizeof(int));
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof(int));
        ga_os_copy(CMSG_DATA(&control.head), &fd, sizeof fd);
    }
    for (;;) {
        long n = CALL3(SYS_sendmsg, socket, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n == -EINTR)
            continue;
        if (n != -EAGAIN || timeout_ms == 0)
            return (int)n;
        long ready = wait_for(socket, POLLOUT, timeout_ms);
        if (ready <= 0)
            return ready == 0 ? -ETIMEDOUT : (int)ready;
        timeout_ms = 0; // writable now: try once more
    }
}

// Returns the first descriptor that came along, and closes all further ones.
static int take_fd(struct msghdr *m) {
    int taken = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            ga_os_copy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (taken < 0)
                taken = fd;
            else
                ga_os_close(fd);
        }
    }
    return taken;
}

int ga_os_receive(int socket, const struct ga_os_identity *id, void *buffer, size_t size, int *fd,
                  int timeout_ms) {
    *fd = -1;
    for (;;) {
        struct iovec iov = {buffer, size};
        union control control;
        ga_os_zero(&control, sizeof control);
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = &control,
                           .msg_controllen = sizeof control.room};
        // Wait first: recvmsg would fail now, because the daemon has only just got the request.
        long ready = wait_for(socket, POLLIN, timeout_ms);
        if (ready < 0)
            return (int)ready;
        // The program may have closed the socket, and another file may have its number now.
        if (!ga_os_is(socket, id))
            return -EPIPE;
        if (ready == 0)
            return -ETIMEDOUT;
        long n = CALL3(SYS_recvmsg, socket, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n == -EINTR || n == -EAGAIN)
            continue;
        if (n < 0)
            return (int)n;
        *fd = take_fd(&m);
        if (m.msg_flags & MSG_TRUNC) {
            if (*fd >= 0)
                ga_os_close(*fd);
            *fd = -1;
            return -EMSGSIZE;
        }
        return (int)n;
    }
}

void ga_os_close(int fd) {
    CALL1(SYS_close, fd);
}

void ga_os_shutdown(int socket) {
    CALL2(SYS_shutdown, socket, SHUT_RDWR);
}

#define MAJOR_OF_MEMORY 1 // major device number of /dev/null and /dev/zero

static bool stat_fd(int fd, struct stat *st) {
    return fd >= 0 && CALL2(SYS_fstat, fd, st) == 0;
}

bool ga_os_is_terminal(int fd) {
    struct stat st = {0};
    uint64_t device;
    if (!stat_fd(fd, &st) || !S_ISCHR(st.st_mode))
        return false;
    device = (uint64_t)st.st_rdev >> 8 & 0xfff; // its major number
    return device != MAJOR_OF_MEMORY;
}

bool ga_os_identify(int fd, struct ga_os_identity *id) {
    struct stat st = {0};
    if (!stat_fd(fd, &st))
        return false;
    id->dev = (uint64_t)st.st_dev;
    id->ino = (uint64_t)st.st_ino;
    return true;
}

bool ga_os_is(int fd, const struct ga_os_identity *id) {
    struct ga_os_identity now;
    return ga_os_identify(fd, &now) && now.dev == id->dev && now.ino == id->ino;
}

uint64_t ga_os_file_size(int fd) {
    struct stat st = {0};
    return stat_fd(fd, &st) && st.st_size > 0 ? (uint64_t)st.st_size : 0;
}

// Blocks SIGPIPE and SIGXFSZ during the write: a pipe without a reader or a full file would
// otherwise end the program. Other signals stay open, because a user may want to end the program.
void ga_os_write(int fd, const char *text, size_t size, int timeout_ms) {
    const uint64_t ours = 1ull << (SIGPIPE - 1) | 1ull << (SIGXFSZ - 1);
    const struct timespec now = {0, 0};
    uint64_t blocked = 0;
    uint64_t pending = 0;
    if (wait_for(fd, POLLOUT, timeout_ms) <= 0)
        return;
    CALL4(SYS_rt_sigprocmask, SIG_BLOCK, &ours, &blocked, sizeof blocked);
    CALL2(SYS_rt_sigpending, &pending, sizeof pending);
    long n;
    do {
        n = CALL3(SYS_write, fd, text, size);
    } while (n == -EINTR);
    uint64_t new = ours & ~pending; // a signal that was pending before belongs to the program
    if (is_error(n) && new)
        CALL4(SYS_rt_sigtimedwait, &new, NULL, &now, sizeof new);
    ga_os_restore_signals(blocked);
}

int ga_os_open_append(const char *path) {
    return (int)CALL4(SYS_openat, AT_FDCWD, path,
                      O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
}

int ga_os_open_read(const char *path) {
    return (int)CALL4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOCTTY, 0);
}

bool ga_os_exists(const char *path) {
    return CALL3(SYS_faccessat, AT_FDCWD, path, F_OK) == 0;
}

long ga_os_read(int fd, void *buffer, size_t size) {
    return CALL3(SYS_read, fd, buffer, size);
}

size_t ga_os_length(const char *s) {
    size_t n = 0;
    while (s[n])
        n++;
    return n;
}

bool ga_os_equal(const char *a, const char *b) {
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

bool ga_os_begins(const char *s, const char *with) {
    while (*with && *s == *with) {
        s++;
        with++;
    }
    return *with == '\0';
}

void ga_os_hex(char *at, uint32_t value, int digits) {
    while (digits-- > 0)
        *at++ = "0123456789abcdef"[value >> 4 * digits & 0xf];
}

int ga_os_unhex(char digit) {
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

void ga_os_copy(void *to, const void *from, size_t size) {
    __builtin_memcpy(to, from, size);
}

void ga_os_zero(void *at, size_t size) {
    __builtin_memset(at, 0, size);
}
