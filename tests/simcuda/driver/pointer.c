// SPDX-License-Identifier: Apache-2.0
//
// Attributes of pointers.

#include "driver.h"

#include <string.h>

enum attribute {
    ATTR_CONTEXT = 1,
    ATTR_MEMORY_TYPE,
    ATTR_DEVICE_POINTER,
    ATTR_HOST_POINTER,
    ATTR_P2P_TOKENS,
    ATTR_SYNC_MEMOPS,
    ATTR_BUFFER_ID,
    ATTR_IS_MANAGED,
    ATTR_DEVICE_ORDINAL,
    ATTR_IPC_CAPABLE,
    ATTR_RANGE_START,
    ATTR_RANGE_SIZE,
    ATTR_MAPPED,
    ATTR_HANDLE_TYPES,
    ATTR_RDMA_CAPABLE,
    ATTR_ACCESS_FLAGS,
    ATTR_POOL,
};

static int ordinal(int phys) {
    for (int i = 0; i < drv.device_count; i++)
        if (drv.phys[i] == phys)
            return i;
    return -1;
}

#define PUT(type, value)                                                                           \
    do {                                                                                           \
        type put_value = (type)(value);                                                            \
        memcpy(out, &put_value, sizeof put_value);                                                 \
    } while (0)

static CUresult of_block(const struct block *b, CUdeviceptr p, int attribute, void *out) {
    bool host = b->kind == BLOCK_HOST, managed = b->kind == BLOCK_MANAGED;
    switch (attribute) {
    case ATTR_CONTEXT:
        PUT(CUcontext, b->pool ? 0 : b->ctx);
        break;
    case ATTR_MEMORY_TYPE:
        PUT(unsigned, host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
        break;
    case ATTR_DEVICE_POINTER:
        PUT(CUdeviceptr, p);
        break;
    case ATTR_HOST_POINTER:
        if (!host && !managed)
            return CUDA_ERROR_INVALID_VALUE;
        PUT(CUdeviceptr, p);
        break;
    case ATTR_SYNC_MEMOPS:
        PUT(unsigned, 0);
        break;
    case ATTR_BUFFER_ID:
        PUT(unsigned long long, b->id);
        break;
    case ATTR_IS_MANAGED:
        PUT(unsigned, managed);
        break;
    case ATTR_DEVICE_ORDINAL:
        PUT(int, ordinal(b->phys));
        break;
    case ATTR_IPC_CAPABLE:
    case ATTR_HANDLE_TYPES:
    case ATTR_RDMA_CAPABLE:
        PUT(unsigned, 0);
        break;
    case ATTR_RANGE_START:
        PUT(CUdeviceptr, b->base);
        break;
    case ATTR_RANGE_SIZE:
        PUT(size_t, b->size);
        break;
    case ATTR_MAPPED:
        PUT(unsigned, 1);
        break;
    case ATTR_ACCESS_FLAGS:
        PUT(unsigned, 3); // read and write
        break;
    case ATTR_POOL:
        PUT(CUmemoryPool, pool_handle(b->pool));
        break;
    default:
        return attribute == ATTR_P2P_TOKENS ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult of_registered(CUdeviceptr p, int attribute, void *out) {
    struct block like = {.base = p, .size = 1, .kind = BLOCK_HOST};
    return of_block(&like, p, attribute, out);
}

static CUresult get_locked(CUdeviceptr p, int attribute, void *out) {
    struct block *b = block_find(p);
    struct range r;
    if (b)
        return of_block(b, p, attribute, out);
    if (vmm_find(p, &r)) {
        struct block like = {.base = r.base, .size = r.size, .phys = r.phys};
        like.kind = r.phys < 0 ? BLOCK_HOST : BLOCK_DEVICE;
        return of_block(&like, p, attribute, out);
    }
    return host_registered(p, 1) ? of_registered(p, attribute, out) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr p) {
    ENTER_CTX(ctx);
    (void)ctx;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    CUresult rc = get_locked(p, attribute, out);
    pthread_mutex_unlock(&drv.lock);
    return rc;
}
