// SPDX-License-Identifier: Apache-2.0
// cudaprog's commands for arrays and mipmapped arrays:
//
//   array NAME WIDTH HEIGHT FORMAT CHANNELS      cuArrayCreate_v2; FORMAT as its number
//   arrayv1 …                                    cuArrayCreate
//   array3d NAME WIDTH HEIGHT DEPTH FORMAT CHANNELS FLAGS  cuArray3DCreate_v2
//   array3dv1 …                                  cuArray3DCreate
//   arraydestroy NAME            cuArrayDestroy (by name, also after it was destroyed)
//   mipmap NAME … LEVELS         cuMipmappedArrayCreate, otherwise as array3d
//   mipmapdestroy NAME           cuMipmappedArrayDestroy
#include "cudaprog.h"

#include <string.h>

static CUresult make_array_v1(const struct command *c, CUarray *array, bool volume) {
    unsigned int width = (unsigned int)number(c, 2), height = (unsigned int)number(c, 3);
    if (volume) {
        struct {
            unsigned int width, height, depth;
            int format;
            unsigned int channels, flags;
        } d = {width,
               height,
               (unsigned int)number(c, 4),
               (int)number(c, 5),
               (unsigned int)number(c, 6),
               (unsigned int)number(c, 7)};
        return CU(cuArray3DCreate)(array, &d);
    }
    struct {
        unsigned int width, height;
        int format;
        unsigned int channels;
    } d = {width, height, (int)number(c, 4), (unsigned int)number(c, 5)};
    return CU(cuArrayCreate)(array, &d);
}

static CUresult make_array(const struct command *c, CUarray *array) {
    struct {
        size_t width, height;
        int format;
        unsigned int channels;
    } d = {number(c, 2), number(c, 3), (int)number(c, 4), (unsigned int)number(c, 5)};
    return CU(cuArrayCreate_v2)(array, &d);
}

static CUresult make_volume(const struct command *c, void **object, bool mipmap) {
    struct {
        size_t width, height, depth;
        int format;
        unsigned int channels, flags;
    } d = {number(c, 2),
           number(c, 3),
           number(c, 4),
           (int)number(c, 5),
           (unsigned int)number(c, 6),
           (unsigned int)number(c, 7)};
    return mipmap ? CU(cuMipmappedArrayCreate)(object, &d, (unsigned int)number(c, 8))
                  : CU(cuArray3DCreate_v2)(object, &d);
}

static void do_array(const struct command *c) {
    const char *what = c->word[0];
    struct name *n = lookup(c, 1, true);
    void *object = NULL;
    CUresult r;
    if (strcmp(what, "array") == 0)
        r = make_array(c, &object);
    else if (strcmp(what, "arrayv1") == 0)
        r = make_array_v1(c, &object, false);
    else if (strcmp(what, "array3dv1") == 0)
        r = make_array_v1(c, &object, true);
    else
        r = make_volume(c, &object, strcmp(what, "mipmap") == 0);
    if (r == 0)
        n->value = (uintptr_t)object;
    answer(c, r, "");
}

static void do_arraydestroy(const struct command *c) {
    void *object = (void *)(uintptr_t)lookup(c, 1, false)->value;
    bool mipmap = strcmp(c->word[0], "mipmapdestroy") == 0;
    answer(c, mipmap ? CU(cuMipmappedArrayDestroy)(object) : CU(cuArrayDestroy)(object), "");
}

const struct verb arrays_verbs[] = {
    {"array", do_array},
    {"arrayv1", do_array},
    {"array3d", do_array},
    {"array3dv1", do_array},
    {"arraydestroy", do_arraydestroy},
    {"mipmap", do_array},
    {"mipmapdestroy", do_arraydestroy},
    {NULL, NULL},
};
