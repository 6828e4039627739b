// SPDX-License-Identifier: Apache-2.0
// cudaprog's commands for memory of other processes:
//
//   createshared NAME SIZE       cuMemCreate of memory that can be exported as a descriptor
//   createfabric NAME SIZE       cuMemCreate of memory that can be exported as a fabric handle,
//                                if the machine has a channel for it
//   exportfd NAME                cuMemExportToShareableHandle: "exportfd a ok 7"
//   importfd NEW PID FD          cuMemImportFromShareableHandle of another process's descriptor
//   exportfabric NAME            export as a fabric handle: "exportfabric a ok 0123…"
//   importfabric NEW HANDLE      import of a fabric handle
//   ipcget NAME                  cuIpcGetMemHandle: "ipcget a ok 0123…", in hex digits
//   ipcopen NEW HANDLE           cuIpcOpenMemHandle_v2;   ipcopenv1: cuIpcOpenMemHandle
//   ipcclose NAME                cuIpcCloseMemHandle
//   external NEW PID FD SIZE     cuImportExternalMemory of another process's descriptor
//   externalmap NEW NAME SIZE    cuExternalMemoryGetMappedBuffer
//   externalarray NEW NAME OFFSET WIDTH HEIGHT DEPTH FORMAT CHANNELS FLAGS LEVELS
//                                cuExternalMemoryGetMappedMipmappedArray
//   externaldestroy NAME         cuDestroyExternalMemory
//   semaphore NAME               cuImportExternalSemaphore of a descriptor that is not a semaphore
//   semsignal NAME STREAM; semwait NAME STREAM; semdestroy NAME
//   poolexport NAME              cuMemPoolExportToShareableHandle: "poolexport a ok 7"
//   poolimport NEW PID FD        cuMemPoolImportFromShareableHandle of another process's descriptor
//   ptrexport NAME               cuMemPoolExportPointer: "ptrexport a ok 0123…"
//   ptrimport NEW POOL DATA      cuMemPoolImportPointer
#include "cudaprog.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_getfd // Debian 11's headers lack it
#define SYS_pidfd_getfd 438
#endif

static void do_exportfd(const struct command *c) {
    int fd = -1;
    char more[16];
    CUresult r = CU(cuMemExportToShareableHandle)(&fd, lookup(c, 1, false)->value, 1, 0);
    snprintf(more, sizeof more, "%d", fd);
    answer(c, r, more);
}

// Copies a descriptor of another process to this process. Opening it in /proc would make a new open
// file, which NVIDIA's driver does not accept.
static int take_descriptor(const struct command *c) {
    int process = (int)syscall(SYS_pidfd_open, (pid_t)number(c, 2), 0);
    int fd = (int)syscall(SYS_pidfd_getfd, process, (int)number(c, 3), 0);
    if (process >= 0)
        close(process);
    return fd;
}

static void do_importfd(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    int fd = take_descriptor(c);
    uint64_t handle = 0;
    CUresult r = CU(cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)fd, 1);
    close(fd);
    if (r == 0)
        n->value = handle;
    answer(c, r, "");
}

static void print_hex(const struct cu_ipc_handle *h, char *text) {
    *text = 0;
    for (size_t i = 0; i < sizeof *h; i++)
        snprintf(text + 2 * i, 3, "%02x", h->bytes[i]);
}

static struct cu_ipc_handle parse_hex(const char *text) {
    struct cu_ipc_handle h = {{0}};
    for (size_t i = 0; i < sizeof h && strlen(text) == 2 * sizeof h; i++) {
        const char digits[3] = {text[2 * i], text[2 * i + 1], 0};
        h.bytes[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return h;
}

static void do_exportfabric(const struct command *c) {
    struct cu_ipc_handle h = {{0}};
    char more[2 * sizeof h + 1];
    CUresult r = CU(cuMemExportToShareableHandle)(&h, lookup(c, 1, false)->value, 8, 0);
    print_hex(&h, more);
    answer(c, r, more);
}

static void do_importfabric(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    struct cu_ipc_handle h = parse_hex(word(c, 2));
    uint64_t handle = 0;
    CUresult r = CU(cuMemImportFromShareableHandle)(&handle, &h, 8);
    if (r == 0)
        n->value = handle;
    answer(c, r, "");
}

static void do_ipcget(const struct command *c) {
    struct cu_ipc_handle h = {{0}};
    char more[2 * sizeof h + 1];
    CUdeviceptr p = lookup(c, 1, false)->value;
    bool pooled = strcmp(c->word[0], "ptrexport") == 0;
    CUresult r = pooled ? CU(cuMemPoolExportPointer)(&h, p) : CU(cuIpcGetMemHandle)(&h, p);
    print_hex(&h, more);
    answer(c, r, more);
}

static void do_ipcopen(const struct command *c) {
    CUdeviceptr p = 0;
    struct name *n = lookup(c, 1, true);
    struct cu_ipc_handle h = parse_hex(word(c, 2));
    bool first = strcmp(c->word[0], "ipcopenv1") == 0;
    CUresult r = first ? CU(cuIpcOpenMemHandle)(&p, h, 1) : CU(cuIpcOpenMemHandle_v2)(&p, h, 1);
    if (r == 0)
        n->value = p;
    answer(c, r, "");
}

static void do_poolexport(const struct command *c) {
    int fd = -1;
    char more[16];
    CUpool pool = (CUpool)(uintptr_t)lookup(c, 1, false)->value;
    CUresult r = CU(cuMemPoolExportToShareableHandle)(&fd, pool, 1, 0);
    snprintf(more, sizeof more, "%d", fd);
    answer(c, r, more);
}

static void do_poolimport(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    int fd = take_descriptor(c);
    CUpool pool = NULL;
    CUresult r = CU(cuMemPoolImportFromShareableHandle)(&pool, (void *)(intptr_t)fd, 1, 0);
    close(fd);
    if (r == 0)
        n->value = (uintptr_t)pool;
    answer(c, r, "");
}

static void do_ptrimport(const struct command *c) {
    CUdeviceptr p = 0;
    struct name *n = lookup(c, 1, true);
    struct cu_ipc_handle h = parse_hex(word(c, 3));
    CUpool pool = (CUpool)(uintptr_t)lookup(c, 2, false)->value;
    CUresult r = CU(cuMemPoolImportPointer)(&p, pool, &h);
    if (r == 0)
        n->value = p;
    answer(c, r, "");
}

static void do_ipcclose(const struct command *c) {
    answer(c, CU(cuIpcCloseMemHandle)(lookup(c, 1, false)->value), "");
}

static void do_external(const struct command *c) {
    struct {
        int type;
        union {
            int fd;
            void *other[2];
        } handle;
        unsigned long long size;
        unsigned int more[17];
    } d = {.type = 1, .size = number(c, 4)};
    void *external = NULL;
    struct name *n = lookup(c, 1, true);
    d.handle.fd = take_descriptor(c);
    CUresult r = CU(cuImportExternalMemory)(&external, &d);
    if (r == 0)
        n->value = (uintptr_t)external;
    else
        close(d.handle.fd);
    answer(c, r, "");
}

static void do_externalmap(const struct command *c) {
    const struct {
        unsigned long long offset, size;
        unsigned int more[17];
    } d = {.size = number(c, 3)};
    CUdeviceptr p = 0;
    struct name *n = lookup(c, 1, true);
    void *external = (void *)(uintptr_t)lookup(c, 2, false)->value;
    CUresult r = CU(cuExternalMemoryGetMappedBuffer)(&p, external, &d);
    if (r == 0)
        n->value = p;
    answer(c, r, "");
}

static void do_externalarray(const struct command *c) {
    const struct {
        unsigned long long offset;
        struct {
            size_t width, height, depth;
            int format;
            unsigned int channels, flags;
        } array;
        unsigned int levels, more[16];
    } d = {.offset = number(c, 3),
           .array = {number(c, 4), number(c, 5), number(c, 6), (int)number(c, 7),
                     (unsigned)number(c, 8), (unsigned)number(c, 9)},
           .levels = (unsigned)number(c, 10)};
    CUmipmap mipmap = NULL;
    struct name *n = lookup(c, 1, true);
    void *external = (void *)(uintptr_t)lookup(c, 2, false)->value;
    CUresult r = CU(cuExternalMemoryGetMappedMipmappedArray)(&mipmap, external, &d);
    if (r == 0)
        n->value = (uintptr_t)mipmap;
    answer(c, r, "");
}

static void do_semaphore(const struct command *c) {
    struct {
        int type;
        union {
            int fd;
            void *other[2];
        } handle;
        unsigned int flags, more[16];
    } d = {.type = 1};
    const uint64_t fence[18] = {0};
    const char *what = c->word[0];
    struct name *n = lookup(c, 1, strcmp(what, "semaphore") == 0);
    void *semaphore = (void *)(uintptr_t)n->value;
    CUresult r;
    if (strcmp(what, "semaphore") == 0) {
        d.handle.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        r = CU(cuImportExternalSemaphore)(&semaphore, &d);
        if (r != 0)
            close(d.handle.fd);
    } else if (strcmp(what, "semsignal") == 0) {
        r = CU(cuSignalExternalSemaphoresAsync)(&semaphore, fence, 1, stream(c, 2));
    } else if (strcmp(what, "semwait") == 0) {
        r = CU(cuWaitExternalSemaphoresAsync)(&semaphore, fence, 1, stream(c, 2));
    } else {
        r = CU(cuDestroyExternalSemaphore)(semaphore);
    }
    if (r == 0)
        n->value = (uintptr_t)semaphore;
    answer(c, r, "");
}

static void do_externaldestroy(const struct command *c) {
    void *external = (void *)(uintptr_t)lookup(c, 1, false)->value;
    answer(c, CU(cuDestroyExternalMemory)(external), "");
}

const struct verb foreign_verbs[] = {
    {"poolexport", do_poolexport},
    {"poolimport", do_poolimport},
    {"ptrexport", do_ipcget},
    {"ptrimport", do_ptrimport},
    {"exportfd", do_exportfd},
    {"importfd", do_importfd},
    {"exportfabric", do_exportfabric},
    {"importfabric", do_importfabric},
    {"ipcget", do_ipcget},
    {"ipcopen", do_ipcopen},
    {"ipcopenv1", do_ipcopen},
    {"ipcclose", do_ipcclose},
    {"external", do_external},
    {"externalmap", do_externalmap},
    {"externalarray", do_externalarray},
    {"externaldestroy", do_externaldestroy},
    {"semaphore", do_semaphore},
    {"semsignal", do_semaphore},
    {"semwait", do_semaphore},
    {"semdestroy", do_semaphore},
    {NULL, NULL},
};
