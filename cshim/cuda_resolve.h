// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress: the driver answers, we translate the pointer.
#ifndef GA_CUDA_RESOLVE_H
#define GA_CUDA_RESOLVE_H

#include "driver.h"
#include "resolve.h"

// Nothing of the arguments is looked at before the driver did: a NULL that it does not accept
// must fail in it, as without us.
static inline ga_result ga_cuda_get_proc_address(GA_FN_cuGetProcAddress *real, const char *name,
                                                 void **pfn, int version, uint64_t flags) {
    ga_result result = real(name, pfn, version, flags);
    if (result == GA_CUDA_SUCCESS && pfn && *pfn)
        *pfn = ga_resolve_translate(&ga_driver, *pfn, name);
    return result;
}

static inline ga_result ga_cuda_get_proc_address_v2(GA_FN_cuGetProcAddress_v2 *real,
                                                    const char *name, void **pfn, int version,
                                                    uint64_t flags, int *status) {
    ga_result result = real(name, pfn, version, flags, status);
    if (result == GA_CUDA_SUCCESS && pfn && *pfn)
        *pfn = ga_resolve_translate(&ga_driver, *pfn, name);
    return result;
}

#endif
