// SPDX-License-Identifier: Apache-2.0
// cudaprog's commands for pools of stream-ordered memory:
//
//   pool NAME [DEVICE]           cuMemPoolCreate; the other commands take the name "default" for
//                                the device's default pool
//   poolmanaged NAME             cuMemPoolCreate of managed memory without a preferred location
//   poolhost NAME                cuMemPoolCreate of host memory
//   poolshared NAME [DEVICE]     cuMemPoolCreate of memory that can be exported
//   poolmost NAME BYTES          cuMemPoolCreate with a largest size
//   poolshow NAME DEVICE FLAGS   cuMemPoolSetAccess; FLAGS: 3 to read and write, 0 for no access
//   poolnow NAME                 the device's current pool, by cuMemGetMemPool
//   pooldefault NAME             the device's default pool, by cuMemGetDefaultMemPool
//   pooldestroy NAME             cuMemPoolDestroy; NAME may be of a pool that is already destroyed
//   pooluse NAME                 cuDeviceSetMemPool;   pooluse13: cuMemSetMemPool
//   pooltrim NAME BYTES          cuMemPoolTrimTo
//   poolkeep NAME BYTES          sets the pool's release threshold
//   poolholds NAME               prints the bytes that the pool reserves: "poolholds a ok 4096"
//   poolrace NAME COUNT SIZE     allocasync and freeasync in turn, while another thread
//                                makes NAME and the default pool the device's current pool in turn
#include "cudaprog.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pool_properties properties_on(CUdevice on) {
    return (struct pool_properties){.type = 1, .location_type = place_type, .location = on};
}

static void do_pool(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    enum { PINNED = 1, MANAGED };
    const char *what = c->word[0];
    struct pool_properties properties = properties_on((CUdevice)number_or(c, 2, (uint64_t)device));
    CUpool pool = NULL;
    CUresult r;
    if (strcmp(what, "poolmanaged") == 0)
        properties = (struct pool_properties){.type = MANAGED};
    properties.handle_types = strcmp(what, "poolshared") == 0;
    if (strcmp(what, "poolmost") == 0) {
        properties.location = device;
        properties.most = number(c, 2);
    }
    if (strcmp(what, "poolhost") == 0)
        properties = (struct pool_properties){.type = PINNED, .location_type = 2};
    if (strcmp(what, "poolnow") == 0)
        r = CU(cuMemGetMemPool)(&pool, &properties.location_type, PINNED);
    else if (strcmp(what, "pooldefault") == 0)
        r = CU(cuMemGetDefaultMemPool)(&pool, &properties.location_type, PINNED);
    else
        r = CU(cuMemPoolCreate)(&pool, &properties);
    if (r == 0)
        n->value = (uintptr_t)pool;
    answer(c, r, "");
}

static void do_poolcall(const struct command *c) {
    enum { RELEASE_THRESHOLD = 4, RESERVED_CURRENT = 5 };
    const char *what = c->word[0];
    uint64_t value = number_or(c, 2, 0);
    char more[32] = "";
    CUpool pool = NULL;
    CUresult r = named_pool(c, 1, &pool);
    if (r != 0)
        ;
    else if (strcmp(what, "pooldestroy") == 0)
        r = CU(cuMemPoolDestroy)(pool);
    else if (strcmp(what, "poolshow") == 0) {
        const struct access to = {place(c, 2), (int)number(c, 3)};
        r = CU(cuMemPoolSetAccess)(pool, &to, 1);
    } else if (strcmp(what, "pooluse13") == 0) {
        const struct cu_location at = {1, device};
        r = CU(cuMemSetMemPool)(&at, 1, pool);
    } else if (strcmp(what, "pooluse") == 0)
        r = CU(cuDeviceSetMemPool)(device, pool);
    else if (strcmp(what, "pooltrim") == 0)
        r = CU(cuMemPoolTrimTo)(pool, value);
    else if (strcmp(what, "poolkeep") == 0)
        r = CU(cuMemPoolSetAttribute)(pool, RELEASE_THRESHOLD, &value);
    else {
        r = CU(cuMemPoolGetAttribute)(pool, RESERVED_CURRENT, &value);
        snprintf(more, sizeof more, "%" PRIu64, value);
    }
    answer(c, r, more);
}

struct swapping {
    CUpool pools[2];
    _Atomic bool over;
    CUresult failed;
};

static void *swap_run(void *arg) {
    struct swapping *s = arg;
    for (unsigned i = 0; !atomic_load(&s->over) && s->failed == 0; i++)
        s->failed = CU(cuDeviceSetMemPool)(device, s->pools[i % 2]);
    return NULL;
}

static void do_poolrace(const struct command *c) {
    struct swapping s = {.over = false};
    uint64_t count = number(c, 2);
    size_t size = number(c, 3);
    pthread_t other;
    CUresult r = named_pool(c, 1, &s.pools[0]);
    if (r == 0)
        r = CU(cuDeviceGetDefaultMemPool)(&s.pools[1], device);
    if (pthread_create(&other, NULL, swap_run, &s) != 0)
        abort();
    for (uint64_t i = 0; i < count && r == 0; i++) {
        CUdeviceptr p;
        r = CU(cuMemAllocAsync)(&p, size, NULL);
        if (r == 0)
            r = CU(cuMemFreeAsync)(p, NULL);
        if (r == 0)
            r = CU(cuStreamSynchronize)(NULL);
    }
    atomic_store(&s.over, true);
    pthread_join(other, NULL);
    answer(c, r ? r : s.failed, "");
}

const struct verb pools_verbs[] = {
    {"pool", do_pool},          {"poolmanaged", do_pool},
    {"poolhost", do_pool},      {"poolshared", do_pool},
    {"poolmost", do_pool},      {"poolshow", do_poolcall},
    {"poolrace", do_poolrace},  {"poolnow", do_pool},
    {"pooldefault", do_pool},   {"pooldestroy", do_poolcall},
    {"pooluse", do_poolcall},   {"pooluse13", do_poolcall},
    {"pooltrim", do_poolcall},  {"poolkeep", do_poolcall},
    {"poolholds", do_poolcall}, {NULL, NULL},
};
