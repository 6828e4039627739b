// SPDX-License-Identifier: Apache-2.0
// The kernel, without libc: raw system calls, so that no other interposer sees
// them, errno is never touched, and the library imports next to nothing.
//
// Every function returns a value ≥ 0, or a negative errno. None allocates, none
// takes a lock, all are safe in a signal handler.
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

// A file's identity: what tells our descriptor from another with the same number.
struct ga_os_identity {
    uint64_t dev;
    uint64_t ino;
};

// Zeroed private memory, in whole pages; NULL when there is none.
void *ga_os_map(size_t size);
// The same, with its pages there already: what will be used soon, and must not fault then.
void *ga_os_map_now(size_t size);
// The first GA_PAGE_SIZE bytes of fd, shared, not inherited by a forked child; NULL on failure.
void *ga_os_map_page(int fd, size_t size);
void ga_os_unmap(void *at, size_t size);
// A forked child finds these pages zeroed. False where the kernel cannot.
bool ga_os_wipe_on_fork(void *at, size_t size);
void ga_os_huge_pages(void *at, size_t size);

// A full memory barrier in every running thread of the process (membarrier(2)).
void ga_os_barrier_of_all_threads(void);

int ga_os_pid(void);
int ga_os_tid(void);
bool ga_os_thread_lives(int pid, int tid);
// Milliseconds of a clock that never jumps.
uint64_t ga_os_now_ms(void);
// The same, cheap (no system call where there is a vDSO) and up to 4 ms late.
uint64_t ga_os_coarse_ms(void);
// The vDSO's clock_gettime, which the loader's part has found. Not libc's, which programs replace
// to have another time.
struct timespec;
typedef int ga_os_clock(int clock, struct timespec *time);
void ga_os_use_clock(ga_os_clock *clock);
void ga_os_sleep_us(uint64_t us);
// Blocks all signals of the calling thread, and puts back what was blocked before. Two stay open,
// by which libc reaches each thread of a program and waits for it: to end it, and to have it change
// its user (setuid) with the others.
uint64_t ga_os_block_signals(void);
void ga_os_restore_signals(uint64_t blocked);
// What the calling thread is called in lists of threads, up to 15 characters.
void ga_os_name_thread(const char *name);
void ga_os_yield(void);

// Waits until *word is not value, somebody wakes it, or timeout_ms passed (−1: for ever).
void ga_os_wait(_Atomic uint32_t *word, uint32_t value, int timeout_ms);
void ga_os_wake(_Atomic uint32_t *word, int threads);

// A connected SOCK_SEQPACKET socket, CLOEXEC, with a high number where that is allowed.
int ga_os_connect(const char *path);
// Says whether the other end of a connection is gone, without a wait.
bool ga_os_hung_up(int fd);
// Reports, without waiting, whether a descriptor is a connection that has nothing to read, not even
// its end.
bool ga_os_is_quiet(int fd);
// Sends one whole message; fd ≥ 0 goes along. Never blocks longer than timeout_ms (0: not at all).
int ga_os_send(int socket, const void *message, size_t size, int fd, int timeout_ms);
// Receives one message; *fd is a descriptor that came along, or −1. id is what the socket is:
// nothing is taken from another that has its number since the program closed it.
// −ETIMEDOUT after timeout_ms (−1: never); 0 when the peer is gone; −EMSGSIZE when cut; −EPIPE when
// the program has closed it.
int ga_os_receive(int socket, const struct ga_os_identity *id, void *buffer, size_t size, int *fd,
                  int timeout_ms);
int ga_os_raise_fd(int fd);
void ga_os_close(int fd);
// Ends a connection for both sides, whoever else has the descriptor.
void ga_os_shutdown(int socket);
bool ga_os_identify(int fd, struct ga_os_identity *id);
bool ga_os_is(int fd, const struct ga_os_identity *id);
uint64_t ga_os_file_size(int fd);

// Writes a text if the file is ready for it within timeout_ms. No signal comes of it, whoever has
// closed the other end.
void ga_os_write(int fd, const char *text, size_t size, int timeout_ms);
int ga_os_open_append(const char *path);
int ga_os_open_read(const char *path);
long ga_os_read(int fd, void *buffer, size_t size);

static inline uint64_t ga_os_least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

// Small string helpers; no locale, no libc.
size_t ga_os_length(const char *s);
bool ga_os_equal(const char *a, const char *b);
bool ga_os_begins(const char *s, const char *with);
// Writes the last digits of a number, and no end.
void ga_os_hex(char *at, uint32_t value, int digits);
// What a digit is worth; −1: it is none.
int ga_os_unhex(char digit);
void ga_os_copy(void *to, const void *from, size_t size);
void ga_os_zero(void *at, size_t size);

#endif
