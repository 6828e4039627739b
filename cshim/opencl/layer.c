// SPDX-License-Identifier: Apache-2.0
// Fills the layer's table of functions (layer.h). The wrappers in it are in hooks.c.
#include "opencl/layer.h"

#include <dlfcn.h>

#include "hook/library.h"
#include "opencl/hooks.h"

// Index of each row in the loader's table of functions.
static const uint8_t positions[GA_OPENCL_ROWS] = {
#define GA_HOOK(symbol, place, ...) place,
#define GA_NEED(symbol, place, ...) place,
#include "opencl/hooks.def"
#undef GA_HOOK
#undef GA_NEED
};

static void *table[UINT8_MAX + 1];
#define POSITIONS (sizeof table / sizeof *table)

// Copies an answer to the program's buffer, as OpenCL's queries do.
static ga_cl_int copy_value(const void *value, size_t length, size_t size, void *to,
                            size_t *needed) {
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
        return copy_value(&version, sizeof version, size, value, needed);
    return what == GA_CL_LAYER_NAME ? copy_value(name, sizeof name, size, value, needed)
                                    : GA_CL_INVALID_VALUE;
}

// Stores the next function of a row, and puts the row's wrapper into the table.
static void wrap_row(size_t row, void *next) {
    void *wrapper = ga_opencl_layer_wrapper(row);
    atomic_store(&ga_opencl_next[row], next);
    if (wrapper && next)
        table[positions[row]] = wrapper;
}

// The loader calls this once, before any function of the table.
ga_cl_int clInitLayer(ga_cl_uint count, void *const *next, ga_cl_uint *own_count,
                      void *const **own) {
    if (!next || !own_count || !own)
        return GA_CL_INVALID_VALUE;
    if (!ga_library_pin_self())
        return GA_CL_OUT_OF_RESOURCES;
    ga_cl_uint known = count < POSITIONS ? count : POSITIONS;
    ga_os_copy(table, next, known * sizeof *table);
    for (size_t row = 0; row < GA_OPENCL_ROWS; row++)
        if (positions[row] < count)
            wrap_row(row, next[positions[row]]);
    *own_count = known;
    *own = table;
    return GA_CL_SUCCESS;
}
