// SPDX-License-Identifier: Apache-2.0
//
// Access of contexts to each other's memory. All devices are peers of each other. Copies between
// devices need no access, and there are no kernels. So access is recorded, and costs nothing; on a
// real device its page tables are overhead of the process.

#include "driver.h"

#include <stdlib.h>

struct grant {
    CUcontext from, to;
    struct grant *next;
};

static struct grant *grants; // under drv.lock

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer) {
    ENTER();
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    if (!dev_valid(dev) || !dev_valid(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    *can = dev != peer;
    return CUDA_SUCCESS;
}

static struct grant **find(CUcontext from, CUcontext to) {
    struct grant **g = &grants;
    while (*g && ((*g)->from != from || (*g)->to != to))
        g = &(*g)->next;
    return g;
}

static CUresult enable_locked(struct context *ctx, CUcontext handle) {
    struct context *peer = ctx_by_handle(handle);
    if (!peer || peer == ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (peer->phys == ctx->phys)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    struct grant **g = find(ctx->handle, handle);
    if (*g)
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    if (!(*g = malloc(sizeof **g)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    **g = (struct grant){ctx->handle, handle, NULL};
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    ENTER_CTX(ctx);
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    CUresult rc = enable_locked(ctx, peer);
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

static void drop(struct grant **g) {
    struct grant *gone = *g;
    *g = gone->next;
    free(gone);
}

EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer) {
    ENTER_CTX(ctx);
    CUresult rc = CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&drv.lock);
    if (ctx_by_handle(peer)) {
        struct grant **g = find(ctx->handle, peer);
        rc = *g ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
        if (*g)
            drop(g);
    }
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

void peer_context_gone(const struct context *ctx) {
    for (struct grant **g = &grants; *g;)
        if ((*g)->from == ctx->handle || (*g)->to == ctx->handle)
            drop(g);
        else
            g = &(*g)->next;
}
