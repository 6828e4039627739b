// SPDX-License-Identifier: Apache-2.0
// Raw system calls, without libc. So other interposed libraries do not see them, errno never
// changes, and the library imports few symbols. All packages of the library use this file.
//
// Functions return a value ≥ 0 or −errno, if their comment says nothing else. No function allocates
// or takes a lock, so all are safe in a signal handler.
#ifndef GA_OS_H
#define GA_OS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#define GA_LIKELY(x) __builtin_expect(!!(x), 1)
#define GA_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define GA_NOINLINE __attribute__((noinline))

#if defined(__x86_64__)
static inline long ga_os_call(long nr, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long ret;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}
static inline void ga_os_relax(void) {
    __asm__ volatile("pause");
}
#elif defined(__aarch64__)
static inline long ga_os_call(long nr, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = nr;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc #0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
static inline void ga_os_relax(void) {
    __asm__ volatile("yield");
}
#else
#error "gpuarb knows x86-64 and aarch64"
#endif

// Identity of a file. It tells our descriptor from another file that has got the same number.
struct ga_os_identity {
    uint64_t dev;
    uint64_t ino;
};

// Maps zeroed private memory, in whole pages; NULL: no memory.
void *ga_os_map(size_t size);
// Maps memory as ga_os_map does, and populates its pages, because their use must not fault.
void *ga_os_map_now(size_t size);
// Maps the first GA_PAGE_SIZE bytes of fd as shared memory, which a forked child does not inherit.
// NULL: it failed.
void *ga_os_map_page(int fd, size_t size);
void ga_os_unmap(void *at, size_t size);
// Makes a forked child find these pages zeroed. False: the kernel cannot do that.
bool ga_os_wipe_on_fork(void *at, size_t size);
void ga_os_huge_pages(void *at, size_t size);

// Runs a full memory barrier in every running thread of the process (membarrier(2)).
void ga_os_barrier_of_all_threads(void);

int ga_os_pid(void);
int ga_os_tid(void);
bool ga_os_thread_lives(int pid, int tid);
// Returns milliseconds of the monotonic clock.
uint64_t ga_os_now_ms(void);
// Returns the monotonic clock cheaply, up to 4 ms late; no system call if there is a vDSO.
uint64_t ga_os_coarse_ms(void);
// The vDSO's clock_gettime, which hook/loader.c finds. libc's is not used, because programs replace
// it to simulate other times.
struct timespec;
typedef int ga_os_clock(int clock, struct timespec *time);
void ga_os_use_clock(ga_os_clock *clock);
void ga_os_sleep_us(uint64_t us);
// Blocks all signals of the calling thread but two, and returns the previous mask. libc uses these
// two to reach each thread of a program and waits for its reaction: to cancel it, and to change its
// user (setuid).
uint64_t ga_os_block_signals(void);
void ga_os_restore_signals(uint64_t blocked);
// Sets the name of the calling thread, up to 15 characters.
void ga_os_name_thread(const char *name);
void ga_os_yield(void);

// Waits until *word differs from value, a thread wakes it, or timeout_ms have passed (−1: no
// limit).
void ga_os_wait(_Atomic uint32_t *word, uint32_t value, int timeout_ms);
void ga_os_wake(_Atomic uint32_t *word, int threads);

// Returns a connected SOCK_SEQPACKET socket, CLOEXEC, with a high number if possible.
int ga_os_connect(const char *path);
// Reports, without waiting, whether the other end of a connection is gone.
bool ga_os_hung_up(int fd);
// Reports, without waiting, whether a descriptor is an open connection with nothing to read.
bool ga_os_is_quiet(int fd);
// Sends one whole message, and fd with it if fd ≥ 0. Blocks at most timeout_ms (0: not at all).
int ga_os_send(int socket, const void *message, size_t size, int fd, int timeout_ms);
// Receives one message. *fd: a descriptor that came with it, or −1. id: identity of the socket; if
// the program has closed it and the number is another file's, nothing is read. Returns 0 when the
// peer is gone, −ETIMEDOUT after timeout_ms (−1: never), −EMSGSIZE for a message that is too long,
// −EPIPE if the program has closed the socket.
int ga_os_receive(int socket, const struct ga_os_identity *id, void *buffer, size_t size, int *fd,
                  int timeout_ms);
int ga_os_raise_fd(int fd);
void ga_os_close(int fd);
// Ends a connection for both sides, even if other processes have the descriptor.
void ga_os_shutdown(int socket);
// Reports whether fd is a terminal. It takes every character device for one, except those with the
// major number of /dev/null.
bool ga_os_is_terminal(int fd);
bool ga_os_identify(int fd, struct ga_os_identity *id);
bool ga_os_is(int fd, const struct ga_os_identity *id);
uint64_t ga_os_file_size(int fd);

// Writes a text if the file is ready for it within timeout_ms. The program gets no signal, even if
// the reader is gone.
void ga_os_write(int fd, const char *text, size_t size, int timeout_ms);
int ga_os_open_append(const char *path);
int ga_os_open_read(const char *path);
// Reports whether a file exists. It needs no free descriptor.
bool ga_os_exists(const char *path);
long ga_os_read(int fd, void *buffer, size_t size);

static inline uint64_t ga_os_least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

// String functions without locale and libc.
size_t ga_os_length(const char *s);
bool ga_os_equal(const char *a, const char *b);
bool ga_os_begins(const char *s, const char *with);
// Writes the lowest digits of a number in hexadecimal, without a NUL.
void ga_os_hex(char *at, uint32_t value, int digits);
// Returns the value of a hexadecimal digit; −1: not a digit.
int ga_os_unhex(char digit);
void ga_os_copy(void *to, const void *from, size_t size);
void ga_os_zero(void *at, size_t size);

#endif
