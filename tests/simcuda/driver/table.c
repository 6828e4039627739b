// SPDX-License-Identifier: Apache-2.0
//
// The driver's private tables, by which the CUDA runtime reaches functions that are not exported.
// Three entries are simulated: the runtime's access to modules, its access to the primary context,
// and its functions for the end of a context. The other entries return 801, so programs of the
// runtime do not start here.

#include "driver.h"

#include <string.h>

enum {
    SLOTS = 11,
    SLOT_SIZE = 0,
    SLOT_MODULE = 1,
    SLOT_PRIMARY = 2,
    STORAGE_SLOTS = 4,
    STORAGE_PUT = 0
};

static const unsigned char cudart_interface[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                                   0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};

static const unsigned char context_storage[16] = {0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11,
                                                  0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93};

static CUresult nothing(void) {
    return drv_unsupported("cuGetExportTable");
}

// Returns the primary context. The runtime retains it once, until the context is reset.
static CUresult primary_context(CUcontext *out, CUdevice dev) {
    ENTER();
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    return primary_of_runtime(dev, out);
}

// Loads a module of the runtime into the current context.
static CUresult load_module(uintptr_t *out, const void *wrapper) {
    ENTER();
    return module_load_wrapped(out, wrapper);
}

// The stored value: only one, of any context.
static struct {
    CUcontext context;
    void *key, *value;
    void (*end)(CUcontext, void *, void *);
} stored;

static CUresult storage_put(CUcontext context, void *key, void *value,
                            void (*end)(CUcontext, void *, void *)) {
    ENTER();
    pthread_mutex_lock(&drv.lock);
    stored.context = context;
    stored.key = key;
    stored.value = value;
    stored.end = end;
    pthread_mutex_unlock(&drv.lock);
    return CUDA_SUCCESS;
}

void storage_end(CUcontext context) {
    void (*end)(CUcontext, void *, void *) = NULL;
    pthread_mutex_lock(&drv.lock);
    if (stored.context == context) {
        end = stored.end;
        stored.context = 0;
    }
    pthread_mutex_unlock(&drv.lock);
    if (end)
        end(context, stored.key, stored.value);
}

EXPORT CUresult cuGetExportTable(const void **out, const void *id) {
    static const void *table[SLOTS];
    if (!out || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    if (memcmp(id, context_storage, sizeof context_storage) == 0) {
        static const void *const storage[STORAGE_SLOTS] = {[STORAGE_PUT] =
                                                               (const void *)storage_put,
                                                           (const void *)nothing,
                                                           (const void *)nothing};
        *out = storage;
        return CUDA_SUCCESS;
    }
    if (memcmp(id, cudart_interface, sizeof cudart_interface) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    pthread_mutex_lock(&drv.lock);
    table[SLOT_SIZE] = (const void *)sizeof table;
    for (int i = 1; i < SLOTS; i++)
        table[i] = (const void *)nothing;
    table[SLOT_MODULE] = (const void *)load_module;
    table[SLOT_PRIMARY] = (const void *)primary_context;
    pthread_mutex_unlock(&drv.lock);
    *out = table;
    return CUDA_SUCCESS;
}
