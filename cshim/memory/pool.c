// SPDX-License-Identifier: Apache-2.0
// Records of pools, readings of their reserved bytes, which set their charge, and the acquisition
// of bytes before an allocation. blocks.c has the blocks, the trimming and the destruction of
// pools. sums.c changes the sums; async.c and graph.c allocate.
#include "memory/pool.h"

#include "core/admit.h"

// Records

static bool has_handle(enum ga_memory_pool_kind kind) {
    return kind == GA_MEMORY_POOL_ORDINARY;
}

// Finds the record with the driver, the kind and the handle of `like`; for a kind without handles,
// with its device.
static struct ga_memory_pool *find_locked(struct ga_memory_pools *p,
                                          const struct ga_memory_pool *like) {
    for (struct ga_memory_pool *pool = p->first; pool; pool = pool->next)
        if (pool->kind == like->kind && pool->driver == like->driver &&
            (has_handle(like->kind) ? pool->handle == like->handle && like->handle != NULL
                                    : pool->device == like->device))
            return pool;
    return NULL;
}

// Returns the record for the pool of `like`, and adds a use, which the caller must end with
// ga_memory_pool_release. *known: whether the pool had a record. If it had none, it gets the first
// unused record to which no thread has a use; a thread that frees a block of an earlier session may
// have one. NULL: there is no such record.
static struct ga_memory_pool *use_locked(struct ga_memory_pools *p,
                                         const struct ga_memory_pool *like, bool *known) {
    struct ga_memory_pool *pool = find_locked(p, like);
    *known = pool != NULL;
    if (!pool)
        pool = p->first;
    while (!*known && pool && (pool->kind != GA_MEMORY_POOL_UNUSED || pool->uses != 0))
        pool = pool->next;
    if (pool && !*known) {
        struct ga_memory_pool fresh = *like;
        fresh.next = pool->next;
        fresh.turn = pool->turn + 1;
        fresh.readings = fresh.applied = pool->readings;
        fresh.reserved_at = UINT64_MAX;
        *pool = fresh;
    }
    if (pool)
        pool->uses++;
    return pool;
}

struct ga_memory_pool *ga_memory_pool_find(struct ga_root *root,
                                           const struct ga_memory_driver *driver, void *handle) {
    struct ga_memory_pools *p = &ga_memory_of(root)->pools;
    const struct ga_memory_pool like = {.driver = driver, .handle = handle};
    ga_self_lock(&p->lock);
    struct ga_memory_pool *pool = find_locked(p, &like);
    if (pool)
        pool->uses++;
    ga_self_unlock(&p->lock);
    return pool;
}

static void read_first(struct ga_root *root, struct ga_memory_pool *pool);

static struct ga_memory_pool *make(struct ga_root *root, struct ga_memory_pool *like) {
    struct ga_memory_pools *p = &ga_memory_of(root)->pools;
    bool known;
    like->tag = atomic_load(&root->tag);
    ga_self_lock(&p->lock);
    struct ga_memory_pool *pool = use_locked(p, like, &known);
    ga_self_unlock(&p->lock);
    if (!pool) {
        struct ga_memory_pool *fresh = ga_root_alloc(root, sizeof *fresh);
        if (!fresh)
            return NULL;
        fresh->kind = GA_MEMORY_POOL_UNUSED;
        ga_self_lock(&p->lock);
        fresh->next = p->first;
        p->first = fresh;
        pool = use_locked(p, like, &known);
        ga_self_unlock(&p->lock);
        ga_publish_pool(root);
    }
    if (known)
        return pool;
    atomic_store(&p->in_use, 1);
    if (like->device >= 0)
        read_first(root, pool);
    return pool;
}

struct ga_memory_pool *ga_memory_pool_make(struct ga_root *root,
                                           const struct ga_memory_driver *driver, void *handle,
                                           int device) {
    return make(root, &(struct ga_memory_pool){.driver = driver,
                                               .handle = handle,
                                               .device = device,
                                               .kind = GA_MEMORY_POOL_ORDINARY});
}

struct ga_memory_pool *ga_memory_pool_of_kind(struct ga_root *root,
                                              const struct ga_memory_driver *driver,
                                              uint32_t device, enum ga_memory_pool_kind kind) {
    struct ga_memory_pool *pool =
        make(root, &(struct ga_memory_pool){.driver = driver, .device = (int)device, .kind = kind});
    if (pool)
        ga_memory_pool_release(root, pool);
    return pool;
}

// Asks the driver for a device's pool, and returns its record. *named: whether the driver returned
// a handle. If not, it is the device's record of kind GA_MEMORY_POOL_NONE.
static struct ga_memory_pool *ask_current(struct ga_root *root,
                                          const struct ga_memory_driver *driver, uint32_t device,
                                          bool *named) {
    void *handle = driver->pool_of_device(root, device);
    *named = handle != NULL;
    return make(root, &(struct ga_memory_pool){.driver = driver,
                                               .handle = handle,
                                               .device = (int)device,
                                               .kind = handle ? GA_MEMORY_POOL_ORDINARY
                                                              : GA_MEMORY_POOL_NONE});
}

struct ga_memory_pool *ga_memory_pool_current(struct ga_root *root,
                                              const struct ga_memory_driver *driver,
                                              uint32_t device) {
    struct ga_memory_pools *p = &ga_memory_of(root)->pools;
    struct ga_memory_pool *pool = NULL;
    ga_self_lock(&p->lock);
    // The record in current is still that of this pool, because destroying a pool changes the turn,
    // too.
    uint64_t turn = ga_memory_pool_turn(root);
    if (turn != 0 && p->current[device].turn == turn && p->current[device].pool->driver == driver)
        pool = p->current[device].pool;
    if (pool)
        pool->uses++;
    ga_self_unlock(&p->lock);
    if (pool)
        return pool;
    bool named;
    pool = ask_current(root, driver, device, &named);
    ga_self_lock(&p->lock);
    p->current[device].turn = named && pool ? turn : 0;
    p->current[device].pool = pool;
    ga_self_unlock(&p->lock);
    return pool;
}

struct ga_memory_pool *ga_memory_pool_named(struct ga_root *root,
                                            const struct ga_memory_driver *driver, void *handle,
                                            int otherwise) {
    struct ga_memory_pool *pool = ga_memory_pool_find(root, driver, handle);
    if (pool)
        return pool;
    return ga_memory_pool_make(root, driver, handle,
                               driver->device_of_pool(root, handle, otherwise));
}

// ga_memory_pool_change_begin raises changing before changes. A change that begins between the two
// loads here is seen in changing, or has ended; then the next call returns another number.
uint64_t ga_memory_pool_turn(struct ga_root *root) {
    struct ga_memory_pools *p = &ga_memory_of(root)->pools;
    uint64_t changes = atomic_load(&p->changes);
    return atomic_load(&p->changing) ? 0 : changes + 1;
}

struct ga_memory_pool *ga_memory_pool_asked(struct ga_root *root,
                                            const struct ga_memory_driver *driver, uint64_t address,
                                            int device) {
    void *handle = driver->pool_of_block(address);
    if (!handle)
        return NULL;
    struct ga_memory_pool *pool = ga_memory_pool_named(root, driver, handle, device);
    if (!pool || pool->device == device)
        return pool;
    ga_memory_pool_release(root, pool);
    return NULL;
}

// Sums

// Tells the daemon that bytes came back, if the daemon asked for that. notify: result of
// ga_release_in_move.
static void notify_daemon(struct ga_root *root, uint32_t notify) {
    if (notify)
        ga_session_freed(root, notify - 1);
}

// Lowers the charge of a pool to charge, and puts the difference into the credit word. Returns the
// difference; 0: the charge is not higher. *notify: argument for notify_daemon.
static uint64_t lower_locked(struct ga_root *root, struct ga_memory_pool *pool, uint64_t charge,
                             uint32_t *notify) {
    uint64_t bytes = pool->charge > charge ? pool->charge - charge : 0;
    if (bytes == 0)
        return 0;
    pool->charge -= bytes;
    pool->largest = ga_os_least(pool->largest, pool->charge - pool->live);
    pool->turn++;
    uint32_t more = ga_release_in_move(root, (uint32_t)pool->device, bytes, pool->tag);
    *notify = more ? more : *notify;
    atomic_fetch_add(&root->returned[pool->device], 1);
    return bytes;
}

uint64_t ga_memory_pool_release(struct ga_root *root, struct ga_memory_pool *pool) {
    uint32_t notify = 0;
    uint64_t returned = 0;
    struct ga_memory_pools *p = ga_memory_pools_begin(root);
    ga_memory_pool_refresh(root, pool);
    pool->uses--;
    bool over = has_handle(pool->kind) && !pool->handle && pool->live == 0 && pool->freed == 0 &&
                pool->uses == 0;
    if (over && pool->device >= 0) {
        returned = lower_locked(root, pool, 0, &notify);
        ga_memory_pool_count(root, pool);
    }
    if (over)
        pool->kind = GA_MEMORY_POOL_UNUSED;
    ga_memory_pools_end(p);
    notify_daemon(root, notify);
    return returned;
}

// Calls of the driver about a pool

struct ga_memory_pool ga_memory_pool_ask(struct ga_root *root, struct ga_memory_pool *pool) {
    struct ga_memory_pools *p = &ga_memory_of(root)->pools;
    ga_self_lock(&p->lock);
    pool->asking++;
    pool->readings++;
    struct ga_memory_pool copy = *pool;
    ga_self_unlock(&p->lock);
    return copy;
}

void ga_memory_pool_answered(struct ga_root *root, struct ga_memory_pool *pool) {
    struct ga_memory_pools *p = &ga_memory_of(root)->pools;
    ga_self_lock(&p->lock);
    pool->asking--;
    ga_self_unlock(&p->lock);
}

// Reading: the bytes that a pool has reserved, as the driver reports. The last four fields are
// copies of the record's fields (sums.h), made before the driver's call.
struct reading {
    uint64_t bytes;  // reserved bytes; UINT64_MAX: the driver does not report them
    uint64_t number; // ga_memory_pool.readings: later readings have greater numbers
    uint64_t turn;
    uint64_t asked;
    uint64_t blocks;
};

static struct reading read_pool(struct ga_root *root, struct ga_memory_pool *pool) {
    struct ga_memory_pool now = ga_memory_pool_ask(root, pool);
    struct reading r = {UINT64_MAX, now.readings, now.turn, now.asked, now.blocks};
    uint64_t bytes = 0;
    if (now.driver->reserved(root, &now, &bytes))
        r.bytes = bytes;
    ga_memory_pool_answered(root, pool);
    return r;
}

// Reads a pool whose record was just made. All reserved bytes are stale: another process, or a call
// that the library did not see, allocated them.
static void read_first(struct ga_root *root, struct ga_memory_pool *pool) {
    struct ga_memory_pools *p = &ga_memory_of(root)->pools;
    struct reading r = read_pool(root, pool);
    ga_self_lock(&p->lock);
    if (r.bytes != UINT64_MAX && pool->applied < r.number) {
        pool->applied = r.number;
        pool->stale = pool->reserved = r.bytes;
        pool->reserved_at = r.turn;
    }
    ga_self_unlock(&p->lock);
}

// Granules of 2 MiB and of 32 MiB were seen. The growth of a pool for one block shows a larger
// granule.
#define SMALL (2ull << 20)
#define LARGE (32ull << 20)

// Learns a lower bound of a device's granule. A pool has grown by `grew`, while the driver was
// asked for blocks of `bytes` in sum. For one block the growth exceeds the block by less than a
// granule. For blocks of several threads it may exceed them by more. The bound is too high then,
// until granule_of sees a reading that is not a multiple of it.
static void learn_locked(struct ga_memory_granule *g, uint64_t grew, uint64_t bytes) {
    if (grew > bytes && grew - bytes >= g->more_than)
        g->more_than = grew - bytes + 1;
}

// Returns the granule of a device in bytes; 0: no pool has grown by more than it was asked for.
static uint64_t granule_of(const struct ga_memory_granule *g) {
    uint64_t granule = g->readings % LARGE ? SMALL : LARGE;
    if (g->more_than == 0)
        return 0;
    while (granule < g->more_than)
        granule *= 2;
    // Each reading is a multiple of the granule, a power of two. So the granule is at most the
    // lowest bit that is set in any reading.
    return ga_os_least(granule, g->readings & (0 - g->readings));
}

// Sets the charge of a pool by a reading, unless a later reading has set it. *missing: bytes by
// which the charge is too low; they are not acquired here. Returns how many bytes were given back.
static uint64_t apply_locked(struct ga_root *root, struct ga_memory_pool *pool,
                             const struct reading *r, uint64_t *missing, uint32_t *notify) {
    struct ga_memory_pools *p = &ga_memory_of(root)->pools;
    struct ga_memory_granule *g = &p->granule[pool->device];
    *missing = 0;
    if (r->number <= pool->applied)
        return 0;
    pool->applied = r->number;
    if (r->bytes == UINT64_MAX)
        // If the pool is destroyed, its charge stays until its last block is freed. A pool of a
        // kind without handles is charged with its blocks and pending frees alone.
        return has_handle(pool->kind) ? 0
                                      : lower_locked(root, pool, pool->live + pool->freed, notify);
    uint64_t others = r->bytes > pool->live ? r->bytes - pool->live : 0;
    pool->stale = pool->stale < others ? pool->stale : others;
    bool current = r->asked == 0 && r->turn == pool->turn;
    g->readings |= r->bytes;
    // Blocks that the driver is being asked for are live. The reading has all, some or none of
    // them: the pool has at least `least` and at most `most` bytes that are ours.
    uint64_t least = r->bytes - pool->stale;
    uint64_t most = least + pool->asked;
    // Memory of a free that has not executed is still reserved. If the reading is too low to
    // contain all pending frees, the other frees have executed.
    uint64_t unexecuted = most > pool->live ? most - pool->live : 0;
    if (pool->freed > unexecuted)
        ga_memory_frees_forget(p, pool, pool->freed - unexecuted);
    uint64_t held = pool->live + pool->freed;
    uint64_t granule = granule_of(g);
    least = least > held + granule ? least - granule : held;
    most = most > held + granule ? most - granule : held;
    if (pool->charge < least)
        *missing = least - pool->charge;
    uint64_t returned = lower_locked(root, pool, most, notify);
    pool->reserved = r->bytes;
    pool->reserved_at = current ? pool->turn : UINT64_MAX;
    return returned;
}

// Moves bytes in flight of the calling thread to the charge of a pool. False: they were admitted in
// another session (tag) than the pool's, and stay in flight.
static bool charge_locked(struct ga_memory_pool *pool, uint64_t bytes, uint16_t tag) {
    if (tag != pool->tag)
        return false;
    ga_inflight_add((uint32_t)pool->device, 0 - bytes);
    pool->charge += bytes;
    return true;
}

// Charges a pool with bytes that were admitted for it, or gives them back if their session is over.
static void charge_more(struct ga_root *root, struct ga_memory_pool *pool, uint64_t bytes,
                        uint16_t tag) {
    struct ga_memory_pools *p = ga_memory_pools_begin(root);
    ga_memory_pool_refresh(root, pool);
    bool charged = charge_locked(pool, bytes, tag);
    ga_memory_pool_count(root, pool);
    ga_memory_pools_end(p);
    if (!charged)
        ga_release(root, (uint32_t)pool->device, bytes, tag);
}

uint64_t ga_memory_pool_update(struct ga_root *root, struct ga_memory_pool *pool) {
    uint16_t tag;
    uint32_t notify = 0;
    uint64_t missing = 0, returned = 0;
    struct reading r = read_pool(root, pool);
    struct ga_memory_pools *p = ga_memory_pools_begin(root);
    ga_memory_pool_refresh(root, pool);
    if (pool->device >= 0) {
        returned = apply_locked(root, pool, &r, &missing, &notify);
        ga_memory_pool_count(root, pool);
    }
    ga_memory_pools_end(p);
    notify_daemon(root, notify);
    if (missing && ga_admit_fast(root, (uint32_t)pool->device, missing, &tag))
        charge_more(root, pool, missing, tag);
    return returned;
}

// Acquisition

// Number of times that an allocation asks the streams whether their frees have executed, before it
// requests new memory. All these questions take about as long as one request to the daemon.
#define ASKS 32

// Makes t->bytes live, and adds spare to the charge: bytes that were admitted for this allocation
// and are in flight. If charge and spare are less than the new sum of live and freed, changes
// nothing and returns the difference; else returns 0. all_new: spare is t->bytes, and no bytes of
// the stream's frees or of the pool's unused memory are used.
static uint64_t apply_to_pool(struct ga_memory_acquisition *t, uint64_t spare, bool all_new) {
    struct ga_memory_pool *pool = t->pool;
    uint64_t lacks = 0;
    struct ga_memory_pools *p = ga_memory_pools_begin(t->root);
    ga_memory_pool_refresh(t->root, pool);
    if (spare == 0)
        t->tag = pool->tag;
    bool ours = t->tag == pool->tag;
    t->reused = all_new || !ours ? 0 : ga_memory_frees_subtract(p, pool, &t->at, t->bytes);
    uint64_t held = pool->live + pool->freed + t->bytes;
    if (!all_new && held > pool->charge + spare)
        lacks = held - pool->charge - spare;
    if (lacks) {
        ga_memory_frees_restore(p, pool, &t->at, t->reused);
    } else {
        // The daemon of this session does not know bytes that were admitted in an earlier one.
        if (!ours || !charge_locked(pool, spare, t->tag))
            ga_inflight_add((uint32_t)pool->device, 0 - spare);
        pool->live += ours ? t->bytes : 0;
        pool->asked += ours ? t->bytes : 0;
        pool->blocks += ours;
        pool->stale += ours ? 0 : t->bytes;
        pool->turn++;
    }
    ga_memory_pool_count(t->root, pool);
    ga_memory_pools_end(p);
    return lacks;
}

// Acquires t->bytes from the stream's frees and the pool's unused memory, and the missing bytes
// from the credit word. now: the driver has allocated already, so the daemon is asked if the credit
// is too low. False: refused; nothing is acquired.
static bool acquire_pooled(struct ga_memory_acquisition *t, bool now) {
    uint32_t device = (uint32_t)t->pool->device;
    uint64_t lacks = apply_to_pool(t, 0, false);
    if (lacks == 0)
        return true;
    if (now ? !ga_admit_no_wait(t->root, device, lacks, t->kind, &t->tag)
            : !ga_admit_fast(t->root, device, lacks, &t->tag))
        return false;
    if (apply_to_pool(t, lacks, false) == 0)
        return true;
    ga_release(t->root, device, lacks, t->tag);
    return false;
}

// Acquires all of t->bytes as new memory. may_wait: asks the daemon if the credit is too low.
static bool acquire_new(struct ga_memory_acquisition *t, bool may_wait) {
    uint32_t device = (uint32_t)t->pool->device;
    if ((t->full != 0 || !ga_admit_fast(t->root, device, t->bytes, &t->tag)) &&
        !(may_wait && ga_admit_slow(t->root, device, t->bytes, t->kind, t->full, &t->tag)))
        return false;
    apply_to_pool(t, t->bytes, true);
    return true;
}

// Reports whether pending frees would suffice once they have executed. If so, the streams are asked
// before the daemon.
static bool may_free_enough(const struct ga_memory_acquisition *t,
                            const struct ga_memory_pool *pool) {
    return pool->freed != 0 && pool->charge - pool->live >= t->bytes &&
           !ga_admit_exceeds(t->root, (uint32_t)pool->device, t->bytes);
}

bool ga_memory_pool_acquire(struct ga_memory_acquisition *t, enum ga_memory_acquire_how how) {
    for (int asks = 0; how != GA_MEMORY_ACQUIRE_NEW; asks++) {
        struct ga_memory_pool copy = ga_memory_pool_copy(t->root, t->pool);
        bool known = how != GA_MEMORY_ACQUIRE || t->bytes <= copy.largest;
        if (known ? acquire_pooled(t, how == GA_MEMORY_ACQUIRE_NOW) : acquire_new(t, false))
            return true;
        if (how == GA_MEMORY_ACQUIRE_NOW)
            return false;
        if (asks == ASKS || !may_free_enough(t, &copy))
            break;
        if (asks > 0)
            ga_os_yield();
        ga_interface_reap(t->root, (uint32_t)t->pool->device, 0);
    }
    return acquire_new(t, true);
}

// Reads the pool after the driver has answered an allocation. allocated: the driver allocated; if
// not, the bytes are no longer live. Returns by how many bytes the charge is too low.
static uint64_t finish(struct ga_memory_acquisition *t, bool allocated) {
    struct ga_memory_pool *pool = t->pool;
    uint32_t notify = 0;
    uint64_t missing;
    struct reading r = read_pool(t->root, pool);
    struct ga_memory_pools *p = ga_memory_pools_begin(t->root);
    ga_memory_pool_refresh(t->root, pool);
    if (t->tag == pool->tag) {
        bool all = allocated && pool->reserved_at == r.turn - r.blocks;
        if (all && r.bytes != UINT64_MAX && r.bytes > pool->reserved)
            learn_locked(&p->granule[pool->device], r.bytes - pool->reserved, r.asked);
        r.asked -= t->bytes;
        pool->asked -= t->bytes;
        pool->blocks--;
    }
    if (t->tag == pool->tag && !allocated) {
        pool->live -= t->bytes;
        ga_memory_frees_restore(p, pool, &t->at, t->reused);
    }
    apply_locked(t->root, pool, &r, &missing, &notify);
    ga_memory_pool_count(t->root, pool);
    ga_memory_pools_end(p);
    notify_daemon(t->root, notify);
    return missing;
}

void ga_memory_pool_undo(struct ga_memory_acquisition *t) {
    finish(t, false);
}

bool ga_memory_pool_commit(struct ga_memory_acquisition *t) {
    uint16_t tag;
    uint64_t missing = finish(t, true);
    if (GA_LIKELY(missing == 0))
        return true;
    if (!ga_admit_no_wait(t->root, (uint32_t)t->pool->device, missing, t->kind, &tag))
        return false;
    charge_more(t->root, t->pool, missing, tag);
    return true;
}
