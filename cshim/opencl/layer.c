// SPDX-License-Identifier: Apache-2.0
#include "opencl/layer.h"

#include <dlfcn.h>

#include "hook/library.h"
#include "opencl/hooks.h"

// The rows' places in the table, and one more than the last.
enum {
#define GA_AT(symbol, place) PLACE_##symbol = (place),
#include "opencl/layer.def"
#undef GA_AT
    PLACES = PLACE_clSetContextDestructorCallback + 1
};

static void *table[PLACES];

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

static void put(enum ga_opencl_row row, size_t place, ga_cl_uint count, void *const *below) {
    void *wrapper = place < count ? ga_opencl_layer_wrapper(row) : NULL;
    if (place >= count)
        return;
    atomic_store(&ga_opencl_below[row], below[place]);
    if (wrapper && below[place])
        table[place] = wrapper;
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
#define GA_AT(symbol, place) put(GA_OPENCL_ROW_##symbol, place, count, below);
#include "opencl/layer.def"
#undef GA_AT
    *own_count = known;
    *own = table;
    return GA_CL_SUCCESS;
}
