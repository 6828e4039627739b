// SPDX-License-Identifier: Apache-2.0
// This file records the state of this process before Go's runtime changes it, and starts programs
// with that state. spawn.go calls it. Signals are set by system calls, because the C library hides
// two of them.
#include "start.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { last_signal = 64, standard_descriptors = 3 };

// The kernel's struct sigaction on x86-64 and arm64.
struct kernel_sigaction {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

// note_start writes this once, before a second thread exists.
static struct {
    uint64_t ignored; // bit n - 1: signal n
    uint64_t blocked; // bit n - 1: signal n
    struct rlimit files;
    bool files_known;
    bool closed[standard_descriptors];
    int death_signal; // PR_GET_PDEATHSIG
    pid_t parent;
} started;

static uint64_t bit(int number) {
    return UINT64_C(1) << (number - 1);
}

static long mask_signals(const uint64_t *to, uint64_t *from) {
    return syscall(SYS_rt_sigprocmask, SIG_SETMASK, to, from, sizeof(uint64_t));
}

// Runs before main and before Go's runtime, because it is a constructor.
__attribute__((constructor)) static void note_start(void) {
    for (int number = 1; number <= last_signal; number++) {
        struct kernel_sigaction now = {.handler = SIG_DFL};
        long failed = syscall(SYS_rt_sigaction, number, NULL, &now, sizeof now.mask);
        if (failed == 0 && now.handler == SIG_IGN) {
            started.ignored |= bit(number);
        }
    }
    (void)mask_signals(NULL, &started.blocked);
    started.files_known = getrlimit(RLIMIT_NOFILE, &started.files) == 0;
    for (int fd = 0; fd < standard_descriptors; fd++) {
        started.closed[fd] = fcntl(fd, F_GETFD) < 0 && errno == EBADF;
    }
    (void)prctl(PR_GET_PDEATHSIG, &started.death_signal);
    started.parent = getppid();
}

uint64_t gs_inherited(int ignored) {
    return ignored ? started.ignored : started.blocked;
}

pid_t gs_parent(void) {
    return started.parent;
}

// Gives this process the signal dispositions, the limit of files and the closed descriptors that it
// was started with. The caller has blocked all signals, so that no handler of Go runs in a child.
// execute restores the mask.
static void restore(void) {
    for (int number = 1; number <= last_signal; number++) {
        bool ignored = (started.ignored & bit(number)) != 0;
        struct kernel_sigaction then = {.handler = ignored ? SIG_IGN : SIG_DFL};
        // Fails for KILL and STOP.
        (void)syscall(SYS_rt_sigaction, number, &then, NULL, sizeof then.mask);
    }
    if (started.files_known) {
        (void)setrlimit(RLIMIT_NOFILE, &started.files);
    }
    for (int fd = 0; fd < standard_descriptors; fd++) {
        if (started.closed[fd]) {
            (void)close(fd);
        }
    }
}

// Writes a positive number in decimal, with a zero byte at the end.
static void write_pid(char *to, pid_t pid) {
    char digits[GS_DIGITS];
    int count = 0;
    for (; count == 0 || pid > 0; pid /= 10) {
        digits[count++] = (char)('0' + pid % 10);
    }
    while (count > 0) {
        *to++ = digits[--count];
    }
    *to = '\0';
}

// Replaces this process by the program. Returns -errno if that failed.
static int execute(const struct gs_program *program) {
    restore();
    for (size_t i = 0; i < sizeof program->own_pid / sizeof *program->own_pid; i++) {
        if (program->own_pid[i] != NULL) {
            write_pid(program->own_pid[i], getpid());
        }
    }
    (void)mask_signals(&started.blocked, NULL);
    (void)execve(program->path, program->arguments, program->environment);
    return -errno;
}

// Runs in the child, and replaces it by the program. If that fails, it writes -errno to `tell` and
// exits.
static void run_child(const struct gs_program *program, pid_t parent, int tell) {
    (void)prctl(PR_SET_PDEATHSIG, (unsigned long)program->death_signal);
    pid_t now = getppid();           // 0: this child is the first process of a PID namespace
    if (now != 0 && now != parent) { // the parent ended before prctl, so the kernel sends nothing
        (void)kill(getpid(), program->death_signal);
    }
    int failure = execute(program);
    (void)write(tell, &failure, sizeof failure);
    _exit(127);
}

pid_t gs_start(const struct gs_program *program) {
    const uint64_t all = ~UINT64_C(0);
    uint64_t mask = 0;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
        return -errno;
    }
    pid_t parent = getpid();
    (void)mask_signals(&all, &mask);
    pid_t child = fork();
    if (child == 0) {
        run_child(program, parent, ends[1]);
    }
    int failure = child < 0 ? -errno : 0;
    (void)mask_signals(&mask, NULL);
    (void)close(ends[1]);
    if (child > 0) {
        ssize_t got;
        do { // ends without a byte if exec closes the child's end
            got = read(ends[0], &failure, sizeof failure);
        } while (got < 0 && errno == EINTR);
    }
    (void)close(ends[0]);
    if (failure < 0 && child > 0) {
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    return failure < 0 ? failure : child;
}

int gs_exec(const struct gs_program *program) {
    const uint64_t all = ~UINT64_C(0);
    uint64_t mask = 0;
    (void)mask_signals(&all, &mask);
    int wanted = program->death_signal != 0 ? program->death_signal : started.death_signal;
    if (wanted != 0) {
        // After execve the process has only this thread, so the thread's setting applies to the
        // process.
        (void)prctl(PR_SET_PDEATHSIG, (unsigned long)wanted);
    }
    if (program->death_signal != 0 && getppid() != started.parent) {
        (void)mask_signals(&mask, NULL);
        return -ESRCH;
    }
    int failure = execute(program);
    (void)mask_signals(&mask, NULL);
    return failure;
}
