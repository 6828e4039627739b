// SPDX-License-Identifier: Apache-2.0
// Sets the state that a program is started in, and prints it: signals, descriptors, limits.
//
//   started as STATE... -- COMMAND [ARGUMENT...]   sets a state and executes COMMAND in its place
//   started show                                   prints the state that it has itself
//
// A STATE is ignore=SIGNAL, block=SIGNAL, close=FD, open=FD (of /dev/null),
// umask=OCTAL, nice=N, files=N, core=N or stack=N (soft limits). `as` begins with every signal at
// its default and none blocked. Signals are set by the system call, since libc keeps two from
// programs.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// The kernel's struct sigaction.
struct action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

static uint64_t blocked;

static void dispose(long number, void (*handler)(int)) {
    struct action action = {.handler = handler};
    syscall(SYS_rt_sigaction, number, &action, NULL, sizeof action.mask);
}

static void limit(__rlimit_resource_t which, long soft) {
    struct rlimit now;
    getrlimit(which, &now);
    now.rlim_cur = (rlim_t)soft;
    if (setrlimit(which, &now) != 0) {
        perror("setrlimit");
        exit(1);
    }
}

static void set(const char *state) {
    const char *equals = strchr(state, '=');
    size_t length = equals == NULL ? strlen(state) : (size_t)(equals - state);
    long value = equals == NULL ? 0 : strtol(equals + 1, NULL, strncmp(state, "umask", 5) ? 10 : 8);
#define IS(name) (length == sizeof name - 1 && strncmp(state, name, length) == 0)
    if (IS("ignore")) {
        dispose(value, SIG_IGN);
    } else if (IS("block") && value > 0) {
        blocked |= UINT64_C(1) << (value - 1);
    } else if (IS("close")) {
        close((int)value);
    } else if (IS("open")) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        dup2(null, (int)value);
    } else if (IS("umask")) {
        umask((mode_t)value);
    } else if (IS("nice")) {
        setpriority(PRIO_PROCESS, 0, (int)value);
    } else if (IS("files")) {
        limit(RLIMIT_NOFILE, value);
    } else if (IS("core")) {
        limit(RLIMIT_CORE, value);
    } else if (IS("stack")) {
        limit(RLIMIT_STACK, value);
    } else {
        fprintf(stderr, "started: no such state: %s\n", state);
        exit(1);
    }
}

static void as(char **arguments) {
    for (long number = 1; number <= 64; number++) {
        dispose(number, SIG_DFL);
    }
    char text[64];
    snprintf(text, sizeof text, "%d %d", (int)getsid(0), (int)getpgrp());
    setenv("STARTED_IN", text, 1);
    for (; *arguments != NULL && strcmp(*arguments, "--") != 0; arguments++) {
        set(*arguments);
    }
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &blocked, NULL, sizeof blocked);
    if (*arguments != NULL && arguments[1] != NULL) {
        execvp(arguments[1], arguments + 1);
        perror(arguments[1]);
    }
    exit(1);
}

static void copy(FILE *to, const char *path) {
    char line[4096];
    FILE *from = fopen(path, "re");
    while (from != NULL && fgets(line, sizeof line, from) != NULL) {
        fputs(line, to);
    }
    if (from != NULL) {
        fclose(from);
    }
}

// show prints to the first of stdout, stderr and descriptor 3 that is open.
static void show(void) {
    FILE *to = stdout;
    if (fcntl(1, F_GETFD) < 0) {
        to = fcntl(2, F_GETFD) < 0 ? fdopen(3, "w") : stderr;
    }
    char text[64];
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || fd == dirfd(folder)) {
            continue;
        }
        char target[256] = "";
        if (readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1) < 0) {
            perror("readlink");
        }
        fprintf(to, "fd %d %s flags %o\n", fd, target, (unsigned)fcntl(fd, F_GETFL));
    }
    closedir(folder);
    snprintf(text, sizeof text, "%d %d", (int)getsid(0), (int)getpgrp());
    const char *in = getenv("STARTED_IN");
    fprintf(to, "session and group %s\n", in != NULL && strcmp(in, text) == 0 ? "kept" : text);
    fprintf(to, "nice %d\n", getpriority(PRIO_PROCESS, 0));
    copy(to, "/proc/self/limits");
    copy(to, "/proc/self/status");
    fflush(to);
}

int main(int count, char **arguments) {
    if (count > 2 && strcmp(arguments[1], "as") == 0) {
        as(arguments + 2);
    }
    if (count == 2 && strcmp(arguments[1], "show") == 0) {
        show();
        return 0;
    }
    fprintf(stderr, "usage: started as STATE... -- COMMAND, or started show\n");
    return 2;
}
