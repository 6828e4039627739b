// SPDX-License-Identifier: Apache-2.0
//
// cuInit, and the check that begins every other call.

#include "driver.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct driver drv = {.lock = PTHREAD_MUTEX_INITIALIZER};
_Thread_local int drv_in_callback;

static bool forked(void) {
    return drv.alive && !*drv.alive;
}

CUresult drv_check(void) {
    if (!atomic_load_explicit(&drv.ready, memory_order_acquire) || forked())
        return CUDA_ERROR_NOT_INITIALIZED;
    return drv_in_callback ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

CUresult drv_enter(const char *function) {
    CUresult rc = drv_check();
    if (rc || atomic_load_explicit(&drv.sim->rule_count, memory_order_relaxed) == 0)
        return rc;
    return fault_check(function);
}

CUresult drv_unsupported(const char *function) {
    CUresult rc = drv_enter(function);
    return rc ? rc : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult start(void) {
    if (!drv.sim && !(drv.sim = sim_open()))
        return CUDA_ERROR_UNKNOWN;
    if (!dev_select(&drv))
        return CUDA_ERROR_NO_DEVICE;
    int *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || madvise(page, 4096, MADV_WIPEONFORK) != 0)
        return CUDA_ERROR_UNKNOWN;
    if (!(drv.me = sim_proc_register(drv.sim)))
        return CUDA_ERROR_UNKNOWN;
    block_reserve(); // a failure is ignored: the first block tries again
    *page = 1;
    drv.alive = page;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuInit(unsigned flags) {
    if (forked())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (drv_in_callback)
        return CUDA_ERROR_NOT_PERMITTED;
    pthread_mutex_lock(&drv.lock);
    CUresult rc = CUDA_SUCCESS;
    if (!drv.ready && (rc = start()) == CUDA_SUCCESS)
        atomic_store_explicit(&drv.ready, 1, memory_order_release);
    pthread_mutex_unlock(&drv.lock);
    if (rc || atomic_load(&drv.sim->rule_count) == 0)
        return rc;
    return fault_check("cuInit");
}

EXPORT CUresult cuDriverGetVersion(int *version) {
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    // It works before cuInit, because programs check the version first.
    *version = SIM_DRIVER_VERSION;
    return CUDA_SUCCESS;
}
