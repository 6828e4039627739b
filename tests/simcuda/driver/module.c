// SPDX-License-Identifier: Apache-2.0
//
// Modules: code and variables, which take device memory without a size in the call. With
// CUDA_MODULE_LOADING=LAZY (the default of real drivers since 12.2, an option here) a module takes
// its memory when the program first looks up a part of it.

#include "module.h"

#include <stdlib.h>
#include <string.h>

static struct module *modules; // modules of all contexts, under drv.lock

static bool is_lazy(void) {
    const char *mode = getenv("CUDA_MODULE_LOADING");
    return mode && !strcmp(mode, "LAZY");
}

// Returns the cost of a module without its variables, which are blocks.
static struct sim_delta code_cost(const struct module *m) {
    return (struct sim_delta){.extra = (int64_t)m->image.code};
}

static struct sim_delta global_cost(uint64_t bytes) {
    return (struct sim_delta){.extra = (int64_t)bytes};
}

void module_block_gone(const struct block *b) {
    sim_give(drv.sim, drv.me, b->phys, global_cost(b->size));
}

static void empty(struct module *m) {
    for (unsigned i = 0; i < m->image.globals; i++) {
        struct block *b = m->global[i] ? block_exact(m->global[i]) : NULL;
        if (b && b->kind == BLOCK_MODULE)
            mem_free_locked(b);
        m->global[i] = 0;
    }
    if (m->loaded)
        sim_give(drv.sim, drv.me, m->phys, code_cost(m));
    m->loaded = false;
}

CUresult module_fill(struct module *m) {
    if (m->loaded)
        return CUDA_SUCCESS;
    if (!sim_take(drv.sim, drv.me, m->phys, code_cost(m)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->loaded = true;
    for (unsigned i = 0; i < m->image.globals; i++) {
        uint64_t bytes = m->image.global[i].bytes;
        bool taken = sim_take(drv.sim, drv.me, m->phys, global_cost(bytes));
        struct block *b = taken ? block_new(bytes) : NULL;
        if (taken && !b)
            sim_give(drv.sim, drv.me, m->phys, global_cost(bytes));
        if (!b) {
            empty(m);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        b->ctx = m->ctx;
        b->phys = m->phys;
        b->kind = BLOCK_MODULE;
        b->closed_by_handle = true;
        m->global[i] = b->base;
    }
    return CUDA_SUCCESS;
}

void module_drop(struct module *m) {
    struct module **at = &modules;
    empty(m);
    for (unsigned i = 0; i < m->image.kernels; i++) {
        if (!m->function[i])
            continue;
        free(handle_get(HANDLE_FUNCTION, m->function[i]));
        handle_drop(HANDLE_FUNCTION, m->function[i]);
    }
    handle_drop(HANDLE_MODULE, m->handle);
    while (*at && *at != m)
        at = &(*at)->next;
    if (*at)
        *at = m->next;
    free(m);
}

void module_release_context(const struct context *ctx) {
    for (struct module *m = modules, *next; m; m = next) {
        next = m->next;
        if (m->ctx == ctx->handle)
            module_drop(m);
    }
}

void module_drop_library(uintptr_t library) {
    for (struct module *m = modules, *next; m; m = next) {
        next = m->next;
        if (m->library == library)
            module_drop(m);
    }
}

struct module *module_of(uintptr_t library, CUcontext ctx) {
    for (struct module *m = modules; m; m = m->next)
        if (m->library == library && m->ctx == ctx)
            return m;
    return NULL;
}

CUresult module_load(struct context *ctx, const struct image *image, uintptr_t library,
                     uintptr_t *out) {
    struct module *m = calloc(1, sizeof *m);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *m =
        (struct module){.ctx = ctx->handle, .phys = ctx->phys, .library = library, .image = *image};
    pthread_mutex_lock(&drv.lock);
    CUresult rc = ctx_lives(ctx) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (!rc && !is_lazy())
        rc = module_fill(m);
    if (rc) {
        free(m);
    } else {
        m->handle = handle_new(HANDLE_MODULE, m);
        m->next = modules;
        modules = m;
        *out = m->handle;
    }
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

CUresult module_function(uintptr_t module, const char *name, uintptr_t *out) {
    CUresult rc = CUDA_ERROR_NOT_FOUND;
    pthread_mutex_lock(&drv.lock);
    struct module *m = handle_get(HANDLE_MODULE, module);
    if (!m)
        rc = CUDA_ERROR_INVALID_HANDLE;
    for (unsigned i = 0; m && i < m->image.kernels; i++) {
        if (strcmp(m->image.kernel[i].name, name) != 0)
            continue;
        if ((rc = module_fill(m)))
            break;
        if (!m->function[i]) {
            struct function *f = malloc(sizeof *f);
            *f = (struct function){m, m->image.kernel[i].local};
            m->function[i] = handle_new(HANDLE_FUNCTION, f);
        }
        *out = m->function[i];
        break;
    }
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

CUresult module_global(uintptr_t module, const char *name, CUdeviceptr *at, size_t *bytes) {
    CUresult rc = CUDA_ERROR_NOT_FOUND;
    pthread_mutex_lock(&drv.lock);
    struct module *m = handle_get(HANDLE_MODULE, module);
    if (!m)
        rc = CUDA_ERROR_INVALID_HANDLE;
    for (unsigned i = 0; m && i < m->image.globals; i++) {
        if (strcmp(m->image.global[i].name, name) != 0)
            continue;
        if ((rc = module_fill(m)))
            break;
        if (at)
            *at = m->global[i];
        if (bytes)
            *bytes = (size_t)m->image.global[i].bytes;
        break;
    }
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

static CUresult load_data(uintptr_t *out, const void *data) {
    struct image image;
    ENTER_CTX(ctx);
    CUresult rc = capture_unsafe();
    if (!rc && (!out || !data))
        rc = CUDA_ERROR_INVALID_VALUE;
    if (!rc)
        rc = image_read(data, &image);
    return rc ? rc : module_load(ctx, &image, 0, out);
}

// Loads a module as the runtime does, by a wrapper that points to the image.
CUresult module_load_wrapped(uintptr_t *out, const struct fatbin_wrapper *wrapper) {
    enum { WRAPPER_MAGIC = 0x466243b1 };
    if (!wrapper || wrapper->magic != WRAPPER_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    return load_data(out, wrapper->data);
}

EXPORT CUresult cuModuleLoad(uintptr_t *out, const char *path) {
    struct image image;
    ENTER_CTX(ctx);
    CUresult rc = capture_unsafe();
    if (!rc && (!out || !path))
        rc = CUDA_ERROR_INVALID_VALUE;
    if (!rc)
        rc = image_file(path, &image);
    return rc ? rc : module_load(ctx, &image, 0, out);
}

EXPORT CUresult cuModuleLoadData(uintptr_t *out, const void *data) {
    ENTER();
    return load_data(out, data);
}

EXPORT CUresult cuModuleLoadDataEx(uintptr_t *out, const void *data, unsigned count, int *options,
                                   void **values) {
    ENTER();
    if (count && (!options || !values))
        return CUDA_ERROR_INVALID_VALUE;
    return load_data(out, data);
}

EXPORT CUresult cuModuleLoadFatBinary(uintptr_t *out, const void *data) {
    ENTER();
    return load_data(out, data);
}

EXPORT CUresult cuModuleUnload(uintptr_t handle) {
    ENTER_CTX(ctx);
    CUresult rc = CUDA_ERROR_INVALID_HANDLE;
    queue_sync_context(ctx);
    pthread_mutex_lock(&drv.lock);
    struct module *m = handle_get(HANDLE_MODULE, handle);
    if (m && m->library)
        rc = CUDA_ERROR_NOT_PERMITTED; // only the library can unload it
    if (m && !m->library) {
        module_drop(m);
        rc = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

EXPORT CUresult cuModuleGetFunction(uintptr_t *out, uintptr_t module, const char *name) {
    ENTER_CTX(ctx);
    (void)ctx;
    return out && name ? module_function(module, name, out) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *at, size_t *bytes, uintptr_t module,
                                     const char *name) {
    ENTER_CTX(ctx);
    (void)ctx;
    return name ? module_global(module, name, at, bytes) : CUDA_ERROR_INVALID_VALUE;
}
