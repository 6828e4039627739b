// SPDX-License-Identifier: Apache-2.0
// team: a program whose threads each execute commands, while other threads wait.
//
// It prints "ready", then reads commands from stdin, one in a line: THREAD WORD [NAME] [NUMBER].
// THREAD is a number from 0 on; a thread is started when a command first names it, with the context
// of thread 0. When a command is done, its thread prints a line: "THREAD WORD ok" or "THREAD WORD
// err N" with the driver's code. Each thread does its commands in order. At the end of stdin the
// program ends at once, with status 0, even if threads wait.
//
//   context NAME [DEVICE]  cuCtxCreate_v2; the context becomes current;  destroy NAME
//   retain NAME [DEVICE]   cuDevicePrimaryCtxRetain; it becomes current;  release DEVICE
//   use NAME               cuCtxSetCurrent
//   push NAME; pop NAME    cuCtxPushCurrent_v2, cuCtxPopCurrent_v2;
//                          pushv1, popv1: the first versions
//   alloc NAME BYTES       cuMemAlloc_v2;     free NAME     cuMemFree_v2
//   stream NAME            cuStreamCreate;    streamdestroy NAME
//   info                   cuMemGetInfo_v2
//   pid                    "THREAD pid ok PID"
//   end                    the thread ends
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cudriver.h"

#define THREADS 96
#define NAMES 1024
#define LINE 128

struct name {
    char text[32];
    uint64_t value;
};
static struct name names[NAMES];
static size_t n_names;
static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t *named(const char *text) {
    pthread_mutex_lock(&names_lock);
    size_t i = 0;
    while (i < n_names && strcmp(names[i].text, text) != 0)
        i++;
    if (i == n_names) {
        if (n_names++ == NAMES)
            abort();
        snprintf(names[i].text, sizeof names[i].text, "%s", text);
    }
    pthread_mutex_unlock(&names_lock);
    return &names[i].value;
}

struct member {
    pthread_t thread;
    bool started;
    int pipe[2];
    unsigned number;
};
static struct member members[THREADS];
static CUcontext shared;

static CUresult contexts(const char *word, uint64_t *value, int device) {
    CUcontext context = NULL;
    CUresult r;
    if (strcmp(word, "use") == 0)
        return CU(cuCtxSetCurrent)((CUcontext)(uintptr_t)*value);
    if (strcmp(word, "destroy") == 0)
        return CU(cuCtxDestroy_v2)((CUcontext)(uintptr_t)*value);
    if (strcmp(word, "push") == 0)
        return CU(cuCtxPushCurrent_v2)((CUcontext)(uintptr_t)*value);
    if (strcmp(word, "pushv1") == 0)
        return CU(cuCtxPushCurrent)((CUcontext)(uintptr_t)*value);
    if (strcmp(word, "pop") == 0) {
        r = CU(cuCtxPopCurrent_v2)(&context);
    } else if (strcmp(word, "popv1") == 0) {
        r = CU(cuCtxPopCurrent)(&context);
    } else if (strcmp(word, "retain") == 0) {
        r = CU(cuDevicePrimaryCtxRetain)(&context, device);
        r = r ? r : CU(cuCtxSetCurrent)(context);
    } else {
        r = CU(cuCtxCreate_v2)(&context, 0, device);
    }
    *value = (uint64_t)(uintptr_t)context;
    return r;
}

static CUresult others(const char *word, uint64_t *value, uint64_t number) {
    CUstream stream = NULL;
    size_t available, total;
    CUresult r;
    if (strcmp(word, "alloc") == 0)
        return CU(cuMemAlloc_v2)(value, number);
    if (strcmp(word, "free") == 0)
        return CU(cuMemFree_v2)(*value);
    if (strcmp(word, "streamdestroy") == 0)
        return CU(cuStreamDestroy_v2)((CUstream)(uintptr_t)*value);
    if (strcmp(word, "info") == 0)
        return CU(cuMemGetInfo_v2)(&available, &total);
    if (strcmp(word, "stream") != 0) {
        fprintf(stderr, "team: what is %s?\n", word);
        _exit(2);
    }
    r = CU(cuStreamCreate)(&stream, 0);
    *value = (uint64_t)(uintptr_t)stream;
    return r;
}

static void perform(struct member *m, const char *word, const char *name, uint64_t number) {
    char result[32];
    CUresult r;
    if (strcmp(word, "pid") == 0) {
        printf("%u pid ok %d\n", m->number, getpid());
        return;
    }
    if (strcmp(word, "release") == 0)
        r = CU(cuDevicePrimaryCtxRelease_v2)(atoi(name));
    else if (strchr("cdpru", word[0]))
        r = contexts(word, named(name), (int)number);
    else
        r = others(word, named(name), number);
    snprintf(result, sizeof result, r ? "err %d" : "ok", r);
    printf("%u %s %s\n", m->number, word, result);
}

static void *run(void *arg) {
    struct member *m = arg;
    char line[LINE];
    FILE *in = fdopen(m->pipe[0], "r");
    if (!in || CU(cuCtxSetCurrent)(shared) != 0)
        abort();
    while (fgets(line, sizeof line, in)) {
        char word[LINE] = "", name[LINE] = "";
        unsigned long long number = 0;
        sscanf(line, "%127s %127s %llu", word, name, &number);
        if (strcmp(word, "end") == 0)
            break;
        perform(m, word, name, number);
        fflush(stdout);
    }
    return NULL;
}

static void hand_over(const char *line) {
    char *rest;
    unsigned long number = strtoul(line, &rest, 10);
    if (rest == line || number >= THREADS)
        abort();
    struct member *m = &members[number];
    if (!m->started) {
        m->started = true;
        m->number = (unsigned)number;
        if (pipe(m->pipe) != 0 || pthread_create(&m->thread, NULL, run, m) != 0)
            abort();
    }
    if (write(m->pipe[1], rest, strlen(rest)) != (ssize_t)strlen(rest))
        abort();
}

int main(void) {
    char line[LINE];
    if (cu_open() != 0)
        return 1;
    CUresult r = CU(cuInit)(0);
    if (r != 0) {
        printf("init err %d\n", r);
        return 1;
    }
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin))
        hand_over(line);
    fflush(stdout);
    _exit(0);
}
