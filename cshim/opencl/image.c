// SPDX-License-Identifier: Apache-2.0
// Computes the size of an image from its format and its dimensions (image.h).
#include "opencl/image.h"

#define FIRST_ORDER 0x10B0u // CL_R
#define FIRST_TYPE 0x10D0u  // CL_SNORM_INT8

enum {
    IMAGE_2D = 0x10F1,
    IMAGE_3D = 0x10F2,
    IMAGE_2D_ARRAY = 0x10F3,
    IMAGE_1D = 0x10F4,
    IMAGE_1D_ARRAY = 0x10F5,
    IMAGE_1D_BUFFER = 0x10F6,
};

// Returns the bytes of an element (OpenCL 3.0, 5.3.1.1). An unknown format counts as the largest
// format.
static uint64_t element_bytes(const struct ga_cl_format *format) {
    static const uint8_t channels[] = {1, 1, 2, 2, 3, 4, 4, 4, 1, 1, 2, 3, 4, 1, 2, 3, 4, 4, 4, 4};
    static const uint8_t each[] = {1, 2, 1, 2, 0, 0, 0, 1, 2, 4, 1, 2, 4, 2, 4, 0, 0};
    static const uint8_t packed[] = {0, 0, 0, 0, 2, 2, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 4};
    ga_cl_uint order = format->order - FIRST_ORDER;
    ga_cl_uint type = format->type - FIRST_TYPE;
    if (order >= sizeof channels || type >= sizeof each)
        return sizeof(float) * 4;
    return packed[type] ? packed[type] : (uint64_t)channels[order] * each[type];
}

// Returns how many sizes of the descriptor are used by an image type; the others are undefined.
static unsigned int dimensions(ga_cl_uint type) {
    return type == IMAGE_3D                             ? 3
           : type == IMAGE_2D || type == IMAGE_2D_ARRAY ? 2
           : type == IMAGE_1D || type == IMAGE_1D_ARRAY ? 1
                                                        : 0;
}

static size_t half(size_t size) {
    return size > 1 ? size / 2 : 1;
}

// Computes the bytes of all levels. Each level has half the width, height and depth of the level
// before. False: overflow; the driver refuses such an image.
static bool bytes_of(const struct ga_cl_format *format, const struct ga_cl_image *image,
                     uint64_t *bytes) {
    unsigned int known = dimensions(image->type);
    bool array = image->type == IMAGE_2D_ARRAY || image->type == IMAGE_1D_ARRAY;
    size_t width = image->width;
    size_t height = known > 1 ? image->height : 1;
    size_t depth = known > 2 ? image->depth : 1;
    *bytes = 0;
    for (ga_cl_uint level = 0; level == 0 || level < image->levels; level++) {
        uint64_t one = element_bytes(format);
        if (__builtin_mul_overflow(one, width, &one) || __builtin_mul_overflow(one, height, &one) ||
            __builtin_mul_overflow(one, depth, &one) ||
            (array && __builtin_mul_overflow(one, image->layers, &one)) ||
            __builtin_add_overflow(*bytes, one, bytes))
            return false;
        if (width <= 1 && height <= 1 && depth <= 1)
            break; // the last level
        width = half(width);
        height = half(height);
        depth = half(depth);
    }
    return true;
}

bool ga_opencl_image_open(struct ga_allocation *c, ga_cl_context context, ga_cl_bits flags,
                          const struct ga_cl_format *format, const struct ga_cl_image *image) {
    uint64_t bytes = 0;
    if (format && image && !image->of && dimensions(image->type) &&
        !bytes_of(format, image, &bytes))
        bytes = 0;
    return ga_opencl_memory_ask(c, context, flags, bytes, GA_MEMORY_ARRAY);
}

bool ga_opencl_image_open_v1(struct ga_allocation *c, ga_cl_context context, ga_cl_bits flags,
                             const struct ga_cl_format *format, size_t width, size_t height,
                             size_t depth) {
    struct ga_cl_image image = {.type = IMAGE_3D, .width = width, .height = height, .depth = depth};
    return ga_opencl_image_open(c, context, flags, format, &image);
}
