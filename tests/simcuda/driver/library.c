// SPDX-License-Identifier: Apache-2.0
//
// Libraries: images without a context. Each context gets a module of the library at the load, or
// with lazy CUDA_MODULE_LOADING when the program first looks up a part of it there.

#include "module.h"

#include <stdlib.h>

struct library {
    struct image image;
};

// Returns a library's module in the current context; makes it if needed.
static CUresult instance(uintptr_t library, uintptr_t *out) {
    struct context *ctx;
    CUresult rc = ctx_current(&ctx);
    if (rc)
        return rc;
    pthread_mutex_lock(&drv.lock);
    struct library *l = handle_get(HANDLE_LIBRARY, library);
    struct module *m = l ? module_of(library, ctx->handle) : NULL;
    struct image image;
    if (l)
        image = l->image;
    if (m)
        *out = m->handle;
    pthread_mutex_unlock(&drv.lock);
    if (!l)
        return CUDA_ERROR_INVALID_HANDLE;
    return m ? CUDA_SUCCESS : module_load(ctx, &image, library, out);
}

// Loads a library into the current context. Without a context it is loaded at its first use.
static CUresult load(uintptr_t *out, const struct image *image) {
    struct context *ctx;
    struct library *l = malloc(sizeof *l);
    if (!l)
        return CUDA_ERROR_OUT_OF_MEMORY;
    l->image = *image;
    pthread_mutex_lock(&drv.lock);
    *out = handle_new(HANDLE_LIBRARY, l);
    pthread_mutex_unlock(&drv.lock);
    uintptr_t module;
    CUresult rc = ctx_current(&ctx) ? CUDA_SUCCESS : instance(*out, &module);
    if (!rc)
        return rc;
    pthread_mutex_lock(&drv.lock);
    handle_drop(HANDLE_LIBRARY, *out);
    pthread_mutex_unlock(&drv.lock);
    free(l);
    return rc;
}

EXPORT CUresult cuLibraryLoadData(uintptr_t *out, const void *data, int *jit, void **jit_values,
                                  unsigned jits, int *options, void **values, unsigned count) {
    struct image image;
    ENTER();
    if (!out || !data || (jits && (!jit || !jit_values)) || (count && (!options || !values)))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = image_read(data, &image);
    return rc ? rc : load(out, &image);
}

EXPORT CUresult cuLibraryLoadFromFile(uintptr_t *out, const char *path, int *jit, void **jit_values,
                                      unsigned jits, int *options, void **values, unsigned count) {
    struct image image;
    ENTER();
    if (!out || !path || (jits && (!jit || !jit_values)) || (count && (!options || !values)))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = image_file(path, &image);
    return rc ? rc : load(out, &image);
}

EXPORT CUresult cuLibraryUnload(uintptr_t library) {
    ENTER();
    pthread_mutex_lock(&drv.lock);
    struct library *l = handle_get(HANDLE_LIBRARY, library);
    if (l) {
        module_drop_library(library);
        handle_drop(HANDLE_LIBRARY, library);
        free(l);
    }
    pthread_mutex_unlock(&drv.lock);
    return l ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuLibraryGetModule(uintptr_t *out, uintptr_t library) {
    ENTER();
    return out ? instance(library, out) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *at, size_t *bytes, uintptr_t library,
                                   const char *name) {
    ENTER();
    uintptr_t module;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = instance(library, &module);
    return rc ? rc : module_global(module, name, at, bytes);
}
