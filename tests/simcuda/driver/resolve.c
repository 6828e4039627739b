// SPDX-License-Identifier: Apache-2.0
//
// cuGetProcAddress. It works before cuInit and without a device.

#include "resolve.h"
#include "cuda_abi.h"

#include <string.h>

enum { FLAG_LEGACY = 1, FLAG_PER_THREAD = 2, FLAGS_KNOWN = 3 };
enum { STATUS_FOUND, STATUS_NO_SYMBOL, STATUS_VERSION };

static const struct resolve_row *find_row(const char *name, unsigned flags) {
    unsigned low = 0, high = resolve_rows;
    while (low < high) {
        unsigned mid = low + (high - low) / 2;
        int order = strcmp(resolve_table[mid].name, name);
        if (!order)
            order = (int)resolve_table[mid].flags - (int)flags;
        if (!order)
            return &resolve_table[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

// Finds the function for a version. A negative version, or one that is too new, gets the newest
// function: the driver does not refuse it.
static int resolve(const char *name, int version, uint64_t flags, void **out) {
    unsigned which = flags & FLAG_PER_THREAD ? 2 : (unsigned)(flags & FLAG_LEGACY);
    const struct resolve_row *row = find_row(name, which);
    int status = row ? STATUS_VERSION : STATUS_NO_SYMBOL;
    *out = NULL;
    for (unsigned i = 0; row && i < row->count; i++)
        if ((unsigned)version >= row->step[i].version) {
            *out = row->step[i].symbol;
            status = row->step[i].status;
        }
    return status;
}

EXPORT CUresult cuGetProcAddress(const char *name, void **pfn, int version, uint64_t flags) {
    void *found;
    if (flags & ~(uint64_t)FLAGS_KNOWN)
        return CUDA_ERROR_INVALID_VALUE;
    if (resolve(name, version, flags, &found) != STATUS_FOUND)
        return CUDA_ERROR_NOT_FOUND;
    *pfn = found;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **pfn, int version, uint64_t flags,
                                    int *status) {
    if (flags & ~(uint64_t)FLAGS_KNOWN)
        return CUDA_ERROR_INVALID_VALUE;
    int s = resolve(name, version, flags, pfn);
    if (status)
        *status = s;
    return CUDA_SUCCESS;
}
