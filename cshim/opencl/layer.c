// SPDX-License-Identifier: Apache-2.0
#include "opencl/layer.h"

#include <dlfcn.h>

#include "hook/library.h"
#include "opencl/hooks.h"

// The rows' places in the table.
static const uint8_t places[GA_OPENCL_ROWS] = {
#define GA_HOOK(symbol, place, ...) place,
#define GA_NEED(symbol, place, ...) place,
#include "opencl/hooks.def"
#undef GA_HOOK
#undef GA_NEED
};

static void *table[UINT8_MAX + 1];
#define PLACES (sizeof table / sizeof *table)

static ga_cl_int tell(const void *value, size_t length, size_t size, void *to, size_t *needed) {
    if (to && size < length)
        return GA_CL_INVALID_VALUE;
    if (to)
        ga_os_copy(to, value, length);
    if (needed)
        *needed = length;
    return GA_CL_SUCCESS;
}

ga_cl_int clGetLayerInfo(ga_cl_uint what, size_t size, void *value, size_t *needed) {
    static const ga_cl_uint version = GA_CL_LAYER_API_VERSION_100;
    static const char name[] = "gpuarb";
    if (what == GA_CL_LAYER_API_VERSION)
        return tell(&version, sizeof version, size, value, needed);
    return what == GA_CL_LAYER_NAME ? tell(name, sizeof name, size, value, needed)
                                    : GA_CL_INVALID_VALUE;
}

static void put(size_t row, void *below) {
    void *wrapper = ga_opencl_layer_wrapper(row);
    atomic_store(&ga_opencl_below[row], below);
    if (wrapper && below)
        table[places[row]] = wrapper;
}

// The loader calls it once, before any function of the table.
ga_cl_int clInitLayer(ga_cl_uint count, void *const *below, ga_cl_uint *own_count,
                      void *const **own) {
    if (!below || !own_count || !own)
        return GA_CL_INVALID_VALUE;
    if (!ga_library_stays())
        return GA_CL_OUT_OF_RESOURCES;
    ga_cl_uint known = count < PLACES ? count : PLACES;
    ga_os_copy(table, below, known * sizeof *table);
    for (size_t row = 0; row < GA_OPENCL_ROWS; row++)
        if (places[row] < count)
            put(row, below[places[row]]);
    *own_count = known;
    *own = table;
    return GA_CL_SUCCESS;
}
