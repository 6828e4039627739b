// SPDX-License-Identifier: Apache-2.0
// A program with functions of its own in place of libc's, each of which looks the next one up when
// it is called for the first time, as sanitizers and other preloads do. If a preloaded library has
// a dlsym of its own and imports some of these functions, it calls them in the middle of that
// look-up. The program prints the functions that were called by a look-up of dlsym, and calls the
// driver if its arguments ask for it.
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static __thread int depth __attribute__((tls_model("initial-exec")));
static const char *met[64];
static int n_met;

// The arguments are handed on as they came: none has more than six, and none takes floating point.
typedef long any(long, long, long, long, long, long);
static any *next(const char *name) {
    if (depth++ > 8) {
        static const char text[] = "a look-up looks itself up\n";
        (void)!write(2, text, sizeof text - 1);
        _exit(9);
    }
    any *found = (any *)dlsym(RTLD_NEXT, name);
    depth--;
    return found;
}

static bool watching;
static void note(const char *name) {
    if (watching && n_met < 64)
        met[n_met++] = name;
}

#define REPLACE(name)                                                                              \
    __attribute__((visibility("default"))) long replaced_##name(long a, long b, long c, long d,    \
                                                                long e, long f) __asm__(#name);    \
    long replaced_##name(long a, long b, long c, long d, long e, long f) {                         \
        static any *real;                                                                          \
        note(#name);                                                                               \
        if (!real)                                                                                 \
            real = next(#name);                                                                    \
        return real(a, b, c, d, e, f);                                                             \
    }

REPLACE(dl_iterate_phdr)
REPLACE(clock_gettime)
REPLACE(gettimeofday)
REPLACE(time)
REPLACE(nanosleep)
REPLACE(open)
REPLACE(openat)
REPLACE(read)
REPLACE(close)
REPLACE(fcntl)
REPLACE(socket)
REPLACE(connect)
REPLACE(poll)
REPLACE(ppoll)
REPLACE(sendmsg)
REPLACE(recvmsg)
REPLACE(mmap)
REPLACE(munmap)
REPLACE(madvise)
REPLACE(mprotect)
REPLACE(sigaction)
REPLACE(sigprocmask)
REPLACE(pthread_sigmask)
REPLACE(pthread_mutex_lock)
REPLACE(pthread_mutex_unlock)
REPLACE(pthread_self)
REPLACE(pthread_getspecific)
REPLACE(getpid)
REPLACE(gettid)
REPLACE(syscall)
REPLACE(getenv)
REPLACE(strlen)
REPLACE(strcmp)
REPLACE(memcmp)
REPLACE(dlopen)
REPLACE(dlclose)
REPLACE(dladdr)
REPLACE(dlerror)

int main(int argc, char **argv) {
    watching = true;
    bool found = dlsym(RTLD_DEFAULT, "puts") && dlsym(RTLD_NEXT, "malloc");
    bool none = !dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") && !dlsym(RTLD_NEXT, "cuInit");
    watching = false;
    printf("found %d none %d", found, none);
    for (int i = 0; i < n_met; i++)
        printf(" %s", met[i]);
    printf("\n");
    if (argc < 2)
        return 0;
    // Allocate the whole budget, whose size is the argument, and then one byte more.
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned int) = (int (*)(unsigned int))dlsym(driver, "cuInit");
    int (*create)(void **, unsigned int, int) =
        (int (*)(void **, unsigned int, int))dlsym(driver, "cuCtxCreate_v2");
    int (*alloc)(unsigned long long *, size_t) =
        (int (*)(unsigned long long *, size_t))dlsym(driver, "cuMemAlloc_v2");
    void *context;
    unsigned long long at;
    if (!driver || init(0) != 0 || create(&context, 0, 0) != 0)
        return 4;
    size_t bytes = strtoull(argv[1], NULL, 10);
    int first = alloc(&at, bytes);
    int second = alloc(&at, 1);
    printf("alloc %d %d\n", first, second);
    return 0;
}
