// SPDX-License-Identifier: Apache-2.0
// Computes the size of an array from its descriptor (array.h). The driver does not report the size
// of an array that has its memory already.
#include "cuda/array.h"

#include "cuda/state.h"

// Bits of an element, for each group of formats (CUarray_format). A format list ends with 0.
static const struct {
    uint8_t bits;
    bool channel; // true: bits is for one channel; false: for the whole element
    uint8_t formats[12];
} elements[] = {
    {8, true, {0x01, 0x08}},              // UNSIGNED_INT8, SIGNED_INT8
    {16, true, {0x02, 0x09, 0x10}},       // UNSIGNED_INT16, SIGNED_INT16, HALF
    {32, true, {0x03, 0x0a, 0x20}},       // UNSIGNED_INT32, SIGNED_INT32, FLOAT
    {4, false, {0x91, 0x92, 0x97, 0x98}}, // BC1, BC4: 8 bytes for 4 × 4
    // BC2, BC3, BC5, BC6H, BC7: 16 bytes for 4 × 4
    {8, false, {0x93, 0x94, 0x95, 0x96, 0x99, 0x9a, 0x9b, 0x9c, 0x9d, 0x9e}},
    {8, false, {0xc0, 0xc6}},        // UNORM_INT8X1, SNORM_INT8X1
    {12, false, {0x53, 0x59, 0xb0}}, // 8 bits, 4:2:0: semi-planar, planar, NV12
    // 8 bits, 4:2:2: packed, semi-planar, planar, NV16, YUY2
    {16, false, {0x51, 0x55, 0x5b, 0xa2, 0xa5}},
    {16, false, {0xc1, 0xc3, 0xc7, 0xc9}}, // UNORM_INT8X2, INT16X1, and SNORM
    {24, false, {0x54, 0x5a, 0x9f, 0xa1}}, // 16 bits, 4:2:0: semi-planar, planar, P010, P016
    {24, false, {0x57, 0x5d, 0xb2, 0xb4}}, // 8 bits, 4:4:4: semi-planar, planar
    {32, false, {0x50}},                   // UNORM_INT_101010_2
    {32, false, {0x52, 0xa8, 0xa9}},       // 8 bits, 4:4:4 with alpha: packed, AYUV; Y410
    // 16 bits, 4:2:2: semi-planar, planar, P210, P216, Y210, Y216
    {32, false, {0x56, 0x5c, 0xa3, 0xa4, 0xa6, 0xa7}},
    {32, false, {0xc2, 0xc4, 0xc8, 0xca}}, // UNORM_INT8X4, INT16X2, and SNORM
    {48, false, {0x58, 0x5e, 0xb3, 0xb5}}, // 16 bits, 4:4:4: semi-planar, planar
    {64, false, {0xb1}},                   // Y416
    {64, false, {0xc5, 0xcb}},             // UNORM_INT16X4, SNORM_INT16X4
};

// Returns the bits of an element. An unknown format is charged as the largest known element, four
// channels of 32 bits. Nothing corrects the estimate later. A high estimate refuses an allocation
// early; a low estimate would let the program exceed its limit.
static uint64_t element_bits(int format, uint32_t channels) {
    for (size_t e = 0; e < sizeof elements / sizeof elements[0]; e++)
        for (const uint8_t *f = elements[e].formats; *f; f++)
            if (*f == format)
                return elements[e].channel ? elements[e].bits * (uint64_t)channels
                                           : elements[e].bits;
    return 128;
}

// Rounds a length up to whole 4 × 4 blocks if the format is block-compressed.
static uint64_t whole_blocks(uint64_t length, int format) {
    bool compressed = format >= 0x91 && format <= 0x9e;
    return compressed ? (length + 3) & ~3ull : length;
}

static bool has_layers(const struct ga_cuda_array_shape *s) {
    return (s->flags & (GA_CUDA_ARRAY_LAYERED | GA_CUDA_ARRAY_CUBEMAP)) != 0;
}

static uint64_t at_level(uint64_t length, unsigned int level) {
    return length >> level ? length >> level : 1;
}

// Adds the bytes of a level to *sum. False: overflow.
static bool add_level(const struct ga_cuda_array_shape *s, unsigned int level, uint64_t *sum) {
    uint64_t depth = has_layers(s) ? at_level(s->depth, 0) : at_level(s->depth, level);
    uint64_t bits;
    return !__builtin_mul_overflow(whole_blocks(at_level(s->width, level), s->format),
                                   whole_blocks(at_level(s->height, level), s->format), &bits) &&
           !__builtin_mul_overflow(bits, depth, &bits) &&
           !__builtin_mul_overflow(bits, element_bits(s->format, s->channels), &bits) &&
           !__builtin_add_overflow(*sum, bits / 8 + (bits % 8 != 0), sum);
}

// Returns how many levels the driver makes at most: until the longest side has length 1.
static unsigned int most_levels(const struct ga_cuda_array_shape *s) {
    uint64_t sides = s->width | s->height | (has_layers(s) ? 0 : s->depth);
    unsigned int levels = 0;
    for (; sides; sides >>= 1)
        levels++;
    return levels;
}

// Returns the bytes of all levels; 0 on overflow: the driver then refuses the array.
static uint64_t bytes_of(const struct ga_cuda_array_shape *s, unsigned int levels) {
    uint64_t bytes = 0;
    unsigned int most = most_levels(s);
    for (unsigned int level = 0; level == 0 || (level < levels && level < most); level++)
        if (!add_level(s, level, &bytes))
            return 0;
    return bytes;
}

bool ga_cuda_array_open(struct ga_allocation *c, struct ga_cuda_array_shape shape,
                        unsigned int levels) {
    c->root = NULL;
    if (!shape.width || shape.flags & (GA_CUDA_ARRAY_SPARSE | GA_CUDA_ARRAY_DEFERRED_MAPPING))
        return true;
    return ga_cuda_allocation_open(c, bytes_of(&shape, levels), GA_MEMORY_PLAIN);
}

static bool undo_array(uint64_t handle) {
    return GA_REAL(cuArrayDestroy)((ga_array)(uintptr_t)handle) == GA_CUDA_SUCCESS;
}

static bool undo_mipmap(uint64_t handle) {
    return GA_REAL(cuMipmappedArrayDestroy)((ga_mipmap)(uintptr_t)handle) == GA_CUDA_SUCCESS;
}

ga_result ga_cuda_array_created(struct ga_allocation *c, ga_result result, struct ga_key key) {
    c->entry.space = key.space;
    return ga_cuda_allocation_settle(c, result, key.number,
                                     key.space == GA_SPACE_CUDA_MIPMAP ? undo_mipmap : undo_array);
}
