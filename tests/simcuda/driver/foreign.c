// SPDX-License-Identifier: Apache-2.0
//
// Memory of others: blocks of other processes, opened by a handle of 64 bytes, and memory of other
// APIs, imported by a descriptor. It costs the importing process nothing until its owner frees it.
// Its bytes are not available here: copies return 801.

#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IPC_MAGIC 0x63706964756d6973ull

enum { LAZY_PEER_ACCESS = 1, OPAQUE_FD = 1 };

typedef struct {
    uint64_t magic, serial;
    CUdeviceptr base;
    uint64_t size, id;
    int32_t pid, phys;
    uint64_t reserved[2];
} CUipcMemHandle;
_Static_assert(sizeof(CUipcMemHandle) == 64, "of its size in cuda.h");

// An opened block. If the process opens it again, it gets the same address.
struct opened {
    CUipcMemHandle handle;
    CUcontext ctx;
    CUdeviceptr at;
    unsigned uses;
    struct opened *next;
};

static struct opened *opened; // under drv.lock

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr p) {
    ENTER_CTX(ctx);
    (void)ctx;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    struct block *b = block_find(p);
    bool can = b && b->kind == BLOCK_DEVICE;
    if (can)
        *out = (CUipcMemHandle){.magic = IPC_MAGIC,
                                .serial = drv.me->serial,
                                .base = b->base,
                                .size = b->size,
                                .id = b->id,
                                .pid = drv.me->pid,
                                .phys = b->phys};
    pthread_mutex_unlock(&drv.lock);
    return can ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool foreign_owner_lives(uint64_t serial) {
    for (uint32_t i = 0; i < atomic_load(&drv.sim->proc_high); i++) {
        struct sim_proc *p = &drv.sim->proc[i];
        if (atomic_load(&p->state) == SIM_PROC_LIVE && p->serial == serial)
            return true;
    }
    return false;
}

static bool borrow(const CUipcMemHandle *h) {
    return sim_borrow(
        drv.sim, drv.me,
        &(struct sim_loan){.owner = h->serial, .object = h->id, .bytes = h->size, .dev = h->phys});
}

struct block *foreign_block(struct context *ctx, uint64_t size, int phys) {
    struct block *b = block_new(size);
    if (b) {
        b->kind = BLOCK_FOREIGN;
        b->ctx = ctx->handle;
        b->phys = phys;
    }
    return b;
}

// drv.lock is held.
static struct opened *open_locked(struct context *ctx, const CUipcMemHandle *h) {
    struct opened *o = opened;
    while (o && (o->ctx != ctx->handle || memcmp(&o->handle, h, sizeof *h) != 0))
        o = o->next;
    if (o) {
        o->uses++;
        return o;
    }
    struct block *b = foreign_block(ctx, h->size, h->phys);
    if (!b)
        return NULL;
    if (!borrow(h) || !(o = malloc(sizeof *o))) {
        block_drop(b);
        return NULL;
    }
    b->closed_by_handle = true;
    *o = (struct opened){*h, ctx->handle, b->base, 1, opened};
    return opened = o;
}

static CUresult ipc_open(CUdeviceptr *out, const CUipcMemHandle *h, unsigned flags) {
    ENTER_CTX(ctx);
    if (!out || flags != LAZY_PEER_ACCESS || h->magic != IPC_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    if (h->serial == drv.me->serial)
        return CUDA_ERROR_INVALID_CONTEXT; // the block is this process's own
    if (!foreign_owner_lives(h->serial))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    struct opened *o = open_locked(ctx, h);
    if (o)
        *out = o->at;
    pthread_mutex_unlock(&drv.lock);
    return o ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle h, unsigned flags) {
    ENTER();
    return ipc_open(out, &h, flags);
}

EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle h, unsigned flags) {
    ENTER();
    return ipc_open(out, &h, flags);
}

static void forget(CUdeviceptr at) {
    for (struct opened **o = &opened; *o; o = &(*o)->next)
        if ((*o)->at == at) {
            struct opened *gone = *o;
            *o = gone->next;
            sim_return(drv.sim, drv.me, gone->handle.serial, gone->handle.id);
            free(gone);
            return;
        }
}

void foreign_dropped(const struct block *b) {
    if (b->closed_by_handle)
        forget(b->base);
}

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr p) {
    ENTER_CTX(ctx);
    (void)ctx;
    pthread_mutex_lock(&drv.lock);
    struct opened *o = opened;
    while (o && o->at != p)
        o = o->next;
    bool known = o != NULL;
    if (known && --o->uses == 0)
        mem_free_locked(block_exact(p));
    pthread_mutex_unlock(&drv.lock);
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct external {
    uintptr_t handle;
    uint64_t size;
    int phys;
};

struct external_desc {
    int type;
    union {
        int fd;
        const void *win32[2];
    } handle;
    unsigned long long size;
    unsigned flags, reserved[16];
};

struct buffer_desc {
    unsigned long long offset, size;
    unsigned flags, reserved[16];
};

// After a successful import the driver owns the descriptor.
EXPORT CUresult cuImportExternalMemory(uintptr_t *out, const struct external_desc *what) {
    struct stat st;
    ENTER_CTX(ctx);
    if (!out || !what || !what->size)
        return CUDA_ERROR_INVALID_VALUE;
    if (what->type != OPAQUE_FD)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (fstat(what->handle.fd, &st) != 0 || (uint64_t)st.st_size < what->size)
        return CUDA_ERROR_INVALID_VALUE;
    struct external *e = malloc(sizeof *e);
    if (!e)
        return CUDA_ERROR_OUT_OF_MEMORY;
    close(what->handle.fd);
    *e = (struct external){0, what->size, ctx->phys};
    pthread_mutex_lock(&drv.lock);
    *out = e->handle = handle_new(HANDLE_EXTERNAL, e);
    pthread_mutex_unlock(&drv.lock);
    return CUDA_SUCCESS;
}

// Maps the memory as a block, which the program frees like its own blocks.
EXPORT CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *out, uintptr_t external,
                                                const struct buffer_desc *what) {
    ENTER_CTX(ctx);
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    if (!out || !what || !what->size || what->flags)
        return rc;
    pthread_mutex_lock(&drv.lock);
    struct external *e = handle_get(HANDLE_EXTERNAL, external);
    if (!e) {
        rc = CUDA_ERROR_INVALID_HANDLE;
    } else if (what->size <= e->size && what->offset <= e->size - what->size) {
        struct block *b = foreign_block(ctx, what->size, e->phys);
        rc = b ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        if (b)
            *out = b->base;
    }
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

struct mipmap_desc {
    unsigned long long offset;
    CUDA_ARRAY3D_DESCRIPTOR array;
    unsigned levels, reserved[16];
};

EXPORT CUresult cuExternalMemoryGetMappedMipmappedArray(uintptr_t *out, uintptr_t external,
                                                        const struct mipmap_desc *what) {
    ENTER_CTX(ctx);
    if (!out || !what)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    const struct external *e = handle_get(HANDLE_EXTERNAL, external);
    uint64_t room = e && what->offset <= e->size ? e->size - what->offset : 0;
    pthread_mutex_unlock(&drv.lock);
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    return array_foreign(ctx, out, &what->array, what->levels, room);
}

EXPORT CUresult cuDestroyExternalMemory(uintptr_t external) {
    ENTER_CTX(ctx);
    (void)ctx;
    pthread_mutex_lock(&drv.lock);
    struct external *e = handle_get(HANDLE_EXTERNAL, external);
    if (e)
        handle_drop(HANDLE_EXTERNAL, external);
    pthread_mutex_unlock(&drv.lock);
    free(e);
    return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// Semaphores of another API. The descriptor's contents are not used: only this process signals and
// waits.

enum { TIMELINE_FD = 9 };

struct semaphore {
    uintptr_t handle;
    bool timeline; // true: a value that grows; false: a signal is good for one wait
    uint64_t value;
    unsigned refs;
};

static pthread_cond_t signalled = PTHREAD_COND_INITIALIZER;

struct semaphore_desc {
    int type;
    union {
        int fd;
        const void *win32[2];
    } handle;
    unsigned flags, reserved[16];
};

struct fence {
    unsigned long long value, more[17];
};
_Static_assert(sizeof(struct fence) == 144, "of its size in cuda.h");

EXPORT CUresult cuImportExternalSemaphore(uintptr_t *out, const struct semaphore_desc *what) {
    struct stat st;
    ENTER_CTX(ctx);
    (void)ctx;
    if (!out || !what || what->flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (what->type != OPAQUE_FD && what->type != TIMELINE_FD)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (fstat(what->handle.fd, &st) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct semaphore *s = calloc(1, sizeof *s);
    if (!s)
        return CUDA_ERROR_OUT_OF_MEMORY;
    close(what->handle.fd);
    s->timeline = what->type == TIMELINE_FD;
    s->refs = 1;
    pthread_mutex_lock(&drv.lock);
    *out = s->handle = handle_new(HANDLE_SEMAPHORE, s);
    pthread_mutex_unlock(&drv.lock);
    return CUDA_SUCCESS;
}

struct semaphore_op {
    struct semaphore *semaphore;
    uint64_t value;
};

static void semaphore_unref(struct semaphore *s) {
    if (--s->refs == 0)
        free(s);
}

static void signal_now(void *arg) {
    const struct semaphore_op *op = arg;
    struct semaphore *s = op->semaphore;
    pthread_mutex_lock(&drv.lock);
    s->value = s->timeline ? op->value : s->value + 1;
    pthread_cond_broadcast(&signalled);
    semaphore_unref(s);
    pthread_mutex_unlock(&drv.lock);
}

static void wait_now(void *arg) {
    const struct semaphore_op *op = arg;
    struct semaphore *s = op->semaphore;
    pthread_mutex_lock(&drv.lock);
    while (s->value < (s->timeline ? op->value : 1))
        pthread_cond_wait(&signalled, &drv.lock);
    if (!s->timeline)
        s->value--;
    semaphore_unref(s);
    pthread_mutex_unlock(&drv.lock);
}

// In a capture this would add nodes, which are not simulated.
static CUresult put_fences(struct context *ctx, const uintptr_t *list, const struct fence *fences,
                           unsigned count, CUstream handle, op_fn fn) {
    struct stream *s;
    if (!list || !fences || !count)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = queue_find(ctx, handle, &s);
    if (rc)
        return rc;
    rc = capture_is_on(s) ? CUDA_ERROR_NOT_SUPPORTED : capture_implicit(s);
    pthread_mutex_lock(&drv.lock);
    for (unsigned i = 0; i < count && !rc; i++)
        if (!handle_get(HANDLE_SEMAPHORE, list[i]))
            rc = CUDA_ERROR_INVALID_HANDLE;
    for (unsigned i = 0; i < count && !rc; i++) {
        struct semaphore_op op = {handle_get(HANDLE_SEMAPHORE, list[i]), fences[i].value};
        rc = queue_add(s, fn, &op, sizeof op, NULL, NULL);
        op.semaphore->refs += !rc;
    }
    pthread_mutex_unlock(&drv.lock);
    queue_kick(s);
    queue_unref(s);
    return rc;
}

BOTH(cuSignalExternalSemaphoresAsync, _ptsz,
     (const uintptr_t *list, const struct fence *fences, unsigned count, CUstream hStream),
     put_fences(ctx, list, fences, count, s, signal_now))
BOTH(cuWaitExternalSemaphoresAsync, _ptsz,
     (const uintptr_t *list, const struct fence *fences, unsigned count, CUstream hStream),
     put_fences(ctx, list, fences, count, s, wait_now))

EXPORT CUresult cuDestroyExternalSemaphore(uintptr_t handle) {
    ENTER_CTX(ctx);
    (void)ctx;
    pthread_mutex_lock(&drv.lock);
    struct semaphore *s = handle_get(HANDLE_SEMAPHORE, handle);
    if (s) {
        handle_drop(HANDLE_SEMAPHORE, handle);
        semaphore_unref(s);
    }
    pthread_mutex_unlock(&drv.lock);
    return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
