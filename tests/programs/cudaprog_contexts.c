// SPDX-License-Identifier: Apache-2.0
// cudaprog's commands for contexts and green contexts:
//
//   context NAME [DEVICE]        cuCtxCreate_v2; the context becomes current
//   contextv1, contextv3, contextv4   the other versions of cuCtxCreate
//   contextgl NAME [DEVICE]      cuGLCtxCreate_v2;   contextglv1: cuGLCtxCreate
//   contextvdpau NAME [DEVICE]   cuVDPAUCtxCreate_v2, with a VDPAU of the program;
//                                contextvdpauv1: cuVDPAUCtxCreate
//   attach NAME; detach NAME     cuCtxAttach of the current context, cuCtxDetach
//   push NAME; pop NEW           cuCtxPushCurrent_v2, cuCtxPopCurrent_v2;
//                                pushv1, popv1: the first versions
//   runtime NAME [DEVICE]        gets the primary context by the driver's private table, as the
//                                CUDA runtime does, and makes it current; unseen: only gets it
//   green NAME [DEVICE]          cuGreenCtxCreate;   greendestroy NAME
//   greencontext NEW GREEN       cuCtxFromGreenCtx;  greenstream NEW GREEN
//   primary NAME [DEVICE]        cuDevicePrimaryCtxRetain; the context becomes current
//   use NAME                     cuCtxSetCurrent;   use 0: none
//   destroy NAME                 cuCtxDestroy_v2;   destroyv1: cuCtxDestroy
//   release DEVICE; reset DEVICE of the primary context;   releasev1, resetv1
//   atend NAME                   releases the context at its end, from inside the driver, as the
//                                CUDA runtime's own state does
#include "cudaprog.h"

#include <string.h>

static CUresult retain(CUcontext *context) {
    CUresult r = CU(cuDevicePrimaryCtxRetain)(context, device);
    return r ? r : CU(cuCtxSetCurrent)(*context);
}

// The third entry of the table gives the runtime its context.
static CUresult runtime(CUcontext *context) {
    typedef CUresult get_primary(CUcontext *, CUdevice);
    static const unsigned char id[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                         0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
    const void *table = NULL;
    CUresult r = CU(cuGetExportTable)(&table, id);
    if (r == 0)
        r = ((get_primary *)((void *const *)table)[2])(context, device);
    return r;
}

// Stands in for VdpGetProcAddress of VDPAU: it finds every function of its one device.
enum { VDPAU_DEVICE = 7, VDPAU_INVALID_HANDLE = 3 };

static int vdpau(uint32_t of, uint32_t function, void **pointer) {
    *pointer = (void *)vdpau;
    return of == VDPAU_DEVICE && function != 0 ? 0 : VDPAU_INVALID_HANDLE;
}

static CUresult make_graphics(const char *how, CUcontext *context) {
    if (strcmp(how, "contextgl") == 0)
        return CU(cuGLCtxCreate_v2)(context, 0, device);
    if (strcmp(how, "contextglv1") == 0)
        return CU(cuGLCtxCreate)(context, 0, device);
    if (strcmp(how, "contextvdpau") == 0)
        return CU(cuVDPAUCtxCreate_v2)(context, 0, device, VDPAU_DEVICE, vdpau);
    return CU(cuVDPAUCtxCreate)(context, 0, device, VDPAU_DEVICE, vdpau);
}

CUresult make_context(const char *how, CUcontext *context) {
    if (strcmp(how, "primary") == 0)
        return retain(context);
    if (strcmp(how, "unseen") == 0)
        return runtime(context);
    if (strcmp(how, "runtime") == 0) {
        CUresult r = runtime(context);
        return r ? r : CU(cuCtxSetCurrent)(*context);
    }
    if (strcmp(how, "contextv1") == 0)
        return CU(cuCtxCreate)(context, 0, device);
    if (strcmp(how, "contextv3") == 0)
        return CU(cuCtxCreate_v3)(context, NULL, 0, 0, device);
    if (strcmp(how, "contextv4") == 0)
        return CU(cuCtxCreate_v4)(context, NULL, 0, device);
    if (strncmp(how, "contextgl", 9) == 0 || strncmp(how, "contextvdpau", 12) == 0)
        return make_graphics(how, context);
    return CU(cuCtxCreate_v2)(context, 0, device);
}

static void do_context(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    CUcontext context = NULL;
    device = (CUdevice)number_or(c, 2, (uint64_t)device);
    CUresult r = make_context(c->word[0], &context);
    if (r == 0)
        n->value = (uintptr_t)context;
    else if (context && strcmp(c->word[0], "runtime") != 0 && strcmp(c->word[0], "unseen") != 0)
        r = 9999; // the call was refused, and has changed the handle
    answer(c, r, "");
}

static void do_attach(const struct command *c) {
    CUcontext context = NULL;
    struct name *n = lookup(c, 1, true);
    CUresult r = CU(cuCtxAttach)(&context, 0);
    if (r == 0)
        n->value = (uintptr_t)context;
    answer(c, r, "");
}

static void do_detach(const struct command *c) {
    answer(c, CU(cuCtxDetach)((CUcontext)(uintptr_t)lookup(c, 1, false)->value), "");
}

static void do_push(const struct command *c) {
    CUcontext context = (CUcontext)(uintptr_t)lookup(c, 1, false)->value;
    bool first = strcmp(c->word[0], "pushv1") == 0;
    answer(c, first ? CU(cuCtxPushCurrent)(context) : CU(cuCtxPushCurrent_v2)(context), "");
}

static void do_pop(const struct command *c) {
    CUcontext context = NULL;
    bool first = strcmp(c->word[0], "popv1") == 0;
    CUresult r = first ? CU(cuCtxPopCurrent)(&context) : CU(cuCtxPopCurrent_v2)(&context);
    if (r == 0)
        lookup(c, 1, true)->value = (uintptr_t)context;
    answer(c, r, "");
}

CUresult make_green(void **green) {
    unsigned char resource[144];
    void *description = NULL;
    CUresult r = CU(cuDeviceGetDevResource)(device, resource, 1);
    if (r == 0)
        r = CU(cuDevResourceGenerateDesc)(&description, resource, 1);
    return r ? r : CU(cuGreenCtxCreate)(green, description, device, 1);
}

static void do_green(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    void *made = NULL;
    CUresult r;
    if (strcmp(c->word[0], "green") == 0) {
        device = (CUdevice)number_or(c, 2, (uint64_t)device);
        r = make_green(&made);
    } else {
        void *green = (void *)(uintptr_t)lookup(c, 2, false)->value;
        r = strcmp(c->word[0], "greenstream") == 0 ? CU(cuGreenCtxStreamCreate)(&made, green, 1, 0)
                                                   : CU(cuCtxFromGreenCtx)(&made, green);
    }
    if (r == 0)
        n->value = (uintptr_t)made;
    else if (made)
        r = 9999; // the call was refused, and has changed the handle
    answer(c, r, "");
}

static void do_greendestroy(const struct command *c) {
    answer(c, CU(cuGreenCtxDestroy)((void *)(uintptr_t)lookup(c, 1, false)->value), "");
}

static void do_use(const struct command *c) {
    bool none = strcmp(word(c, 1), "0") == 0;
    void *context = none ? NULL : (void *)(uintptr_t)lookup(c, 1, false)->value;
    answer(c, CU(cuCtxSetCurrent)(context), "");
}

static void do_destroy(const struct command *c) {
    CUcontext context = (CUcontext)(uintptr_t)lookup(c, 1, false)->value;
    bool first = strcmp(c->word[0], "destroyv1") == 0;
    answer(c, first ? CU(cuCtxDestroy)(context) : CU(cuCtxDestroy_v2)(context), "");
}

static void do_release(const struct command *c) {
    const char *what = c->word[0];
    CUdevice of = (CUdevice)number(c, 1);
    CUresult r;
    if (strcmp(what, "release") == 0)
        r = CU(cuDevicePrimaryCtxRelease_v2)(of);
    else if (strcmp(what, "releasev1") == 0)
        r = CU(cuDevicePrimaryCtxRelease)(of);
    else if (strcmp(what, "reset") == 0)
        r = CU(cuDevicePrimaryCtxReset_v2)(of);
    else
        r = CU(cuDevicePrimaryCtxReset)(of);
    answer(c, r, "");
}

static void release_at_end(CUcontext context, void *key, void *value) {
    (void)context, (void)key;
    (void)CU(cuDevicePrimaryCtxRelease_v2)((CUdevice)(intptr_t)value);
}

static void do_atend(const struct command *c) {
    typedef CUresult put(CUcontext, void *, void *, void (*)(CUcontext, void *, void *));
    static const unsigned char id[16] = {0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11,
                                         0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93};
    CUcontext context = (CUcontext)(uintptr_t)lookup(c, 1, false)->value;
    const void *table = NULL;
    CUresult r = CU(cuGetExportTable)(&table, id);
    if (r == 0)
        r = ((put *)((void *const *)table)[0])(context, &table, (void *)(intptr_t)device,
                                               release_at_end);
    answer(c, r, "");
}

const struct verb contexts_verbs[] = {
    {"context", do_context},
    {"primary", do_context},
    {"use", do_use},
    {"contextv1", do_context},
    {"contextv3", do_context},
    {"contextv4", do_context},
    {"contextgl", do_context},
    {"contextglv1", do_context},
    {"contextvdpau", do_context},
    {"contextvdpauv1", do_context},
    {"runtime", do_context},
    {"unseen", do_context},
    {"attach", do_attach},
    {"detach", do_detach},
    {"push", do_push},
    {"pushv1", do_push},
    {"pop", do_pop},
    {"popv1", do_pop},
    {"green", do_green},
    {"greencontext", do_green},
    {"greenstream", do_green},
    {"greendestroy", do_greendestroy},
    {"destroy", do_destroy},
    {"destroyv1", do_destroy},
    {"release", do_release},
    {"atend", do_atend},
    {"releasev1", do_release},
    {"reset", do_release},
    {"resetv1", do_release},
    {NULL, NULL},
};
