// SPDX-License-Identifier: Apache-2.0
#include "cuda/pool.h"

#include "core/admit.h"
#include "core/import.h"
#include "cuda/capture.h"
#include "cuda/device.h"
#include "cuda/state.h"

enum pool_kind {
    ORDINARY,
    GRAPHS,   // of a device: it has no handle
    NAMELESS, // of a device, where the driver does not say which one that takes from
    UNUSED,
};

// A block that is kept, and whose own stream, or graph, would have it again: nothing has come from
// the pool, or gone from it, since, that may have used its place.
struct ready {
    struct ga_cuda_pool_user user;
    uint64_t bytes;
};
#define READY 64

// Guarded by ga_cuda_pools.lock, but for what never changes while anybody can know it.
struct ga_cuda_pool {
    struct ga_cuda_pool *next;
    ga_pool handle; // NULL from its end on: nothing may be asked of it
    int device;     // as ga_cuda_pool_device has it
    enum pool_kind kind;
    uint32_t life;    // which pool it stands for, since it is used again
    uint16_t tag;     // of what is charged; what was charged in another session is nobody's
    uint64_t charged; // blocks, pending ones too, and kept
    uint64_t kept;
    uint64_t blocks;    // whatever their tag
    uint64_t changes;   // of charged or kept
    uint64_t untrimmed; // changes when trimming did not help: it need not be tried again
    uint64_t gives;     // how often something was given back
    uint64_t underway;  // bytes that were admitted for blocks which the driver is asked for
    uint64_t begun;     // how many such blocks there were
    uint64_t stale;     // of what it holds, charged in a session that is over
    // Since it was empty: the one that has taken all its blocks, and whether there were others, or
    // a block that the pool had room for though it was admitted as new. Then a block that was freed
    // may be in use.
    struct ga_cuda_pool_user sole;
    bool doubt;
    uint32_t readies;
    struct ready ready[READY];
};

// The same inside a move.
static struct ga_cuda_pools *begin(struct ga_root *root) {
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    ga_move_begin(root);
    ga_spin_lock(&p->lock);
    return p;
}

static void end(struct ga_cuda_pools *p) {
    ga_spin_unlock(&p->lock);
    ga_move_end();
}

// Records

static struct ga_cuda_pool *find_locked(struct ga_cuda_pools *p, ga_pool handle, int device,
                                        enum pool_kind kind) {
    for (struct ga_cuda_pool *pool = p->first; pool; pool = pool->next)
        if (pool->kind == kind &&
            (kind == ORDINARY ? pool->handle == handle && handle != NULL : pool->device == device))
            return pool;
    return NULL;
}

// What stands for a pool: what does already, or else the first that stands for none. NULL: all do.
static struct ga_cuda_pool *use_locked(struct ga_cuda_pools *p, ga_pool handle, int device,
                                       enum pool_kind kind) {
    struct ga_cuda_pool *pool = find_locked(p, handle, device, kind);
    if (pool)
        return pool;
    pool = p->first;
    while (pool && pool->kind != UNUSED)
        pool = pool->next;
    if (pool)
        *pool = (struct ga_cuda_pool){.next = pool->next,
                                      .handle = handle,
                                      .device = device,
                                      .kind = kind,
                                      .life = pool->life + 1};
    return pool;
}

static struct ga_cuda_pool *find_or_make(struct ga_root *root, ga_pool handle, int device,
                                         enum pool_kind kind) {
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    ga_self_lock(&p->lock);
    struct ga_cuda_pool *pool = use_locked(p, handle, device, kind);
    ga_self_unlock(&p->lock);
    if (pool)
        return pool;
    struct ga_cuda_pool *fresh = ga_root_alloc(root, sizeof *fresh);
    if (!fresh)
        return NULL;
    fresh->kind = UNUSED;
    ga_self_lock(&p->lock);
    fresh->next = p->first;
    p->first = fresh;
    pool = use_locked(p, handle, device, kind);
    ga_self_unlock(&p->lock);
    ga_tell_pool(root);
    return pool;
}

static struct ga_cuda_pool *pool_of(struct ga_root *root, ga_pool handle, int device,
                                    enum pool_kind kind) {
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    ga_self_lock(&p->lock);
    struct ga_cuda_pool *pool = find_locked(p, handle, device, kind);
    ga_self_unlock(&p->lock);
    return pool;
}

// A device's pool, as one of the driver's functions has it; NULL: it has none.
static ga_pool pool_by(ga_result (*ask)(ga_pool *, ga_cu_device), ga_cu_device ordinal) {
    ga_pool handle = NULL;
    return ask && ask(&handle, ordinal) == GA_CUDA_SUCCESS ? handle : NULL;
}

struct ga_cuda_pool *ga_cuda_pool_current(struct ga_root *root, uint32_t device) {
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    uint64_t turn = ga_cuda_pool_turn(root);
    struct ga_cuda_pool *pool = NULL;
    ga_self_lock(&p->lock);
    if (turn != 0 && p->current[device].turn == turn)
        pool = p->current[device].pool;
    ga_self_unlock(&p->lock);
    if (pool)
        return pool;
    ga_pool handle = pool_by(GA_REAL(cuDeviceGetMemPool), ga_cuda_device_ordinal(root, device));
    pool = find_or_make(root, handle, (int)device, handle ? ORDINARY : NAMELESS);
    ga_self_lock(&p->lock);
    p->current[device].turn = handle ? turn : 0;
    p->current[device].pool = pool;
    ga_self_unlock(&p->lock);
    return pool;
}

static int device_of(struct ga_root *root, ga_pool handle, int otherwise) {
    if (!ga_cuda_device_several(root))
        return otherwise;
    for (int ordinal = 0; ordinal < (int)atomic_load(&ga_cuda(root)->device_count); ordinal++)
        if (pool_by(GA_REAL(cuDeviceGetDefaultMemPool), ordinal) == handle ||
            pool_by(GA_REAL(cuDeviceGetMemPool), ordinal) == handle)
            return ga_cuda_device_number(root, ordinal);
    return otherwise;
}

struct ga_cuda_pool *ga_cuda_pool_named(struct ga_root *root, ga_pool handle, int otherwise) {
    struct ga_cuda_pool *pool = pool_of(root, handle, 0, ORDINARY);
    if (pool)
        return pool;
    return find_or_make(root, handle, device_of(root, handle, otherwise), ORDINARY);
}

struct ga_cuda_pools *ga_cuda_pool_change_begin(struct ga_root *root) {
    struct ga_cuda_pools *p = root ? &ga_cuda(root)->pools : NULL;
    if (p) {
        atomic_fetch_add(&p->changing, 1);
        atomic_fetch_add(&p->changes, 1);
    }
    return p;
}

void ga_cuda_pool_change_end(struct ga_cuda_pools *p) {
    if (p)
        atomic_fetch_sub(&p->changing, 1);
}

// In the reverse order: a change that begins between the two is on its way.
uint64_t ga_cuda_pool_turn(struct ga_root *root) {
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    uint64_t changes = atomic_load(&p->changes);
    return atomic_load(&p->changing) ? 0 : changes + 1;
}

struct ga_cuda_pool *ga_cuda_pool_asked(struct ga_root *root, ga_address address, int device) {
    ga_pool handle = NULL;
    if (!GA_ASK(cuPointerGetAttribute, &handle, GA_CUDA_POINTER_POOL, address) || !handle)
        return NULL;
    struct ga_cuda_pool *pool = ga_cuda_pool_named(root, handle, device);
    return pool && pool->device == device ? pool : NULL;
}

struct ga_cuda_pool *ga_cuda_pool_of_graphs(struct ga_root *root, uint32_t device) {
    return find_or_make(root, NULL, (int)device, GRAPHS);
}

int ga_cuda_pool_device(const struct ga_cuda_pool *pool) {
    return pool->device;
}

struct ga_cuda_pool *ga_cuda_pool_of(const struct ga_entry *entry) {
    bool pooled = entry->kind == GA_MEMORY_ASYNC || entry->kind == GA_MEMORY_GRAPH;
    return pooled ? (struct ga_cuda_pool *)(uintptr_t)entry->context : NULL;
}

// Sums

// Whoever jumps out of here leaves bytes counted twice, never not at all: where they come from is
// changed after where they go.

// What the page says of pending bytes is information for people.
static void show_pending(struct ga_root *root, uint32_t device, uint16_t tag) {
    struct ga_view *view = atomic_load(&root->view);
    uint32_t slot = view && view->tag == tag ? atomic_load(&view->slot[device]) : 0;
    if (slot)
        atomic_store((ga_word *)&view->page->lease[slot - 1].pending,
                     ga_root_pending(root, device));
}

void ga_cuda_pool_late(struct ga_root *root, uint32_t device, uint64_t bytes, uint16_t tag) {
    atomic_fetch_add(&root->devices[device].late, bytes);
    show_pending(root, device, tag);
}

// A list of pending frees that begins anew takes along what is late, a graph's bytes too, of which
// the launch may yet be seen to end.
void ga_cuda_pool_not_late(struct ga_root *root, uint32_t device, uint64_t bytes, uint16_t tag) {
    _Atomic uint64_t *late = &root->devices[device].late;
    uint64_t seen = atomic_load(late);
    while (!atomic_compare_exchange_weak(late, &seen, seen > bytes ? seen - bytes : 0))
        ;
    show_pending(root, device, tag);
}

static void add_kept(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes) {
    atomic_fetch_add(&root->devices[pool->device].kept, bytes);
    pool->kept += bytes;
    pool->changes++;
}

static void take_kept(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes) {
    pool->kept -= bytes;
    pool->changes++;
    atomic_fetch_sub(&root->devices[pool->device].kept, bytes);
}

// A session that began anew knows nothing of what was charged before.
static void refresh(struct ga_root *root, struct ga_cuda_pool *pool) {
    uint16_t now = atomic_load(&root->tag);
    if (pool->tag == now || pool->device < 0)
        return;
    take_kept(root, pool, pool->kept);
    pool->stale += pool->charged;
    pool->charged = 0;
    pool->readies = 0;
    pool->tag = now;
}

static bool is_same(const struct ga_cuda_pool_user *a, const struct ga_cuda_pool_user *b) {
    return a->id == b->id && a->context == b->context;
}

static bool find_ready_locked(struct ga_cuda_pool *pool, const struct ga_cuda_pool_user *user,
                              uint64_t bytes) {
    for (uint32_t i = pool->readies; i-- > 0;) {
        if (pool->ready[i].bytes != bytes || !is_same(&pool->ready[i].user, user))
            continue;
        pool->ready[i] = pool->ready[--pool->readies];
        return true;
    }
    return false;
}

// Where there are more than that, one is forgotten.
static void note_ready_locked(struct ga_cuda_pool *pool, const struct ga_cuda_pool_user *user,
                              uint64_t bytes) {
    uint32_t at = pool->readies < READY ? pool->readies++ : (uint32_t)(pool->changes % READY);
    pool->ready[at] = (struct ready){*user, bytes};
}

bool ga_cuda_pool_ready(struct ga_root *root, struct ga_cuda_pool *pool,
                        const struct ga_cuda_pool_user *user, uint64_t bytes, uint16_t *tag) {
    struct ga_cuda_pools *p = begin(root);
    refresh(root, pool);
    bool found = pool->kept >= bytes && find_ready_locked(pool, user, bytes);
    if (found) {
        *tag = pool->tag;
        ga_inflight_add((uint32_t)pool->device, bytes);
        take_kept(root, pool, bytes);
        show_pending(root, (uint32_t)pool->device, pool->tag);
    }
    end(p);
    return found;
}

void ga_cuda_pool_enter(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes) {
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    ga_self_lock(&p->lock);
    pool->underway += bytes;
    pool->begun++;
    ga_self_unlock(&p->lock);
}

void ga_cuda_pool_leave(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes) {
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    ga_self_lock(&p->lock);
    pool->underway -= bytes;
    ga_self_unlock(&p->lock);
}

static void keep_locked(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes,
                        uint16_t tag) {
    refresh(root, pool);
    if (tag == pool->tag)
        add_kept(root, pool, bytes);
    ga_inflight_add((uint32_t)pool->device, 0 - bytes);
    show_pending(root, (uint32_t)pool->device, tag);
}

// Takes bytes from what is kept, as far as there are so many, for the credit word. Inside a move.
static uint64_t give_locked(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes,
                            uint32_t *notify) {
    if (bytes > pool->kept)
        bytes = pool->kept;
    if (bytes == 0)
        return 0;
    take_kept(root, pool, bytes);
    pool->charged -= bytes;
    pool->gives++;
    pool->readies = 0;
    if (pool->charged == 0) {
        pool->sole.id = 0;
        pool->doubt = false;
    }
    atomic_fetch_add(&root->returned[pool->device], 1);
    show_pending(root, (uint32_t)pool->device, pool->tag);
    *notify = ga_give(root, (uint32_t)pool->device, bytes, pool->tag);
    return bytes;
}

// One that was destroyed is gone with its last block.
static void lose_block_locked(struct ga_root *root, struct ga_cuda_pool *pool, uint32_t *notify) {
    refresh(root, pool);
    pool->blocks--;
    if (pool->blocks != 0 || pool->handle || pool->kind == GRAPHS)
        return;
    give_locked(root, pool, UINT64_MAX, notify);
    if (pool->kind == ORDINARY)
        pool->kind = UNUSED;
}

static void tell(struct ga_root *root, uint32_t notify) {
    if (notify)
        ga_session_freed(root, notify - 1);
}

void ga_cuda_pool_keep(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes,
                       uint16_t tag) {
    struct ga_cuda_pools *p = begin(root);
    keep_locked(root, pool, bytes, tag);
    end(p);
}

void ga_cuda_pool_grew(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes,
                       uint16_t tag) {
    struct ga_cuda_pools *p = begin(root);
    refresh(root, pool);
    pool->blocks++;
    pool->changes++;
    pool->underway -= bytes;
    if (tag == pool->tag)
        pool->charged += bytes;
    end(p);
}

void ga_cuda_pool_pends(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes,
                        uint64_t grew, uint16_t tag) {
    struct ga_cuda_pools *p = begin(root);
    refresh(root, pool);
    pool->blocks++;
    pool->changes++;
    if (tag == pool->tag)
        pool->charged += grew;
    ga_cuda_pool_late(root, (uint32_t)pool->device, bytes, tag);
    ga_inflight_add((uint32_t)pool->device, 0 - bytes);
    end(p);
}

uint32_t ga_cuda_pool_execute(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes,
                              uint16_t tag, const struct ga_cuda_pool_user *user) {
    uint32_t notify = 0;
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    ga_spin_lock(&p->lock);
    refresh(root, pool);
    if (tag == pool->tag) {
        add_kept(root, pool, bytes);
        note_ready_locked(pool, user, bytes);
    }
    ga_cuda_pool_not_late(root, (uint32_t)pool->device, bytes, tag);
    lose_block_locked(root, pool, &notify);
    ga_spin_unlock(&p->lock);
    return notify;
}

void ga_cuda_pool_executed(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes,
                           uint16_t tag, const struct ga_cuda_pool_user *user) {
    ga_move_begin(root);
    uint32_t notify = ga_cuda_pool_execute(root, pool, bytes, tag, user);
    ga_move_end();
    tell(root, notify);
}

void ga_cuda_pool_forget_users(struct ga_root *root, uint64_t id, uint64_t context) {
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    ga_self_lock(&p->lock);
    for (struct ga_cuda_pool *pool = p->first; pool; pool = pool->next)
        for (uint32_t i = pool->readies; i-- > 0;) {
            const struct ga_cuda_pool_user *user = &pool->ready[i].user;
            if (context ? user->context == context : user->id == id)
                pool->ready[i] = pool->ready[--pool->readies];
        }
    ga_self_unlock(&p->lock);
}

// What the pools hold

// What a pool holds of its device. UINT64_MAX: that cannot be known.
static uint64_t reserved_by(struct ga_root *root, enum pool_kind kind, ga_pool handle, int device) {
    uint64_t bytes = UINT64_MAX;
    ga_result result = GA_CUDA_NOT_FOUND;
    if (kind == GRAPHS && GA_REAL(cuDeviceGetGraphMemAttribute))
        result = GA_REAL(cuDeviceGetGraphMemAttribute)(
            ga_cuda_device_ordinal(root, (uint32_t)device), GA_CUDA_GRAPH_RESERVED, &bytes);
    else if (handle && GA_REAL(cuMemPoolGetAttribute))
        result = GA_REAL(cuMemPoolGetAttribute)(handle, GA_CUDA_POOL_RESERVED, &bytes);
    return result == GA_CUDA_SUCCESS ? bytes : UINT64_MAX;
}

struct sums {
    enum pool_kind kind;
    int device;
    ga_pool handle;
    uint64_t charged, kept, changes, untrimmed, gives, underway, begun;
    uint32_t life;
    uint16_t tag;
};

static struct sums sums_of(struct ga_root *root, struct ga_cuda_pool *pool) {
    struct ga_cuda_pools *p = begin(root);
    refresh(root, pool);
    struct sums s = {pool->kind,     pool->device,  pool->handle,    pool->charged,
                     pool->kept,     pool->changes, pool->untrimmed, pool->gives,
                     pool->underway, pool->begun,   pool->life,      pool->tag};
    end(p);
    return s;
}

static bool is_of(const struct ga_cuda_pool *pool, const struct sums *s) {
    return pool->tag == s->tag && pool->life == s->life;
}

// Drivers make pools larger by whole granules; both are believed to be in use, and which it is
// shows in what pools hold.
#define LARGE (32ull << 20)
#define SMALL (2ull << 20)

static uint64_t granule_locked(const struct ga_cuda_pools *p) {
    return !p->rounds ? 0 : p->small ? SMALL : LARGE;
}

// What a pool is charged with that holds so much, beyond its blocks: the last granule is rounding.
static uint64_t charge_locked(struct ga_cuda_pools *p, struct ga_cuda_pool *pool, uint64_t reserved,
                              const struct sums *s) {
    uint64_t blocks = pool->charged - pool->kept;
    uint64_t others = reserved > blocks ? reserved - blocks : 0;
    if (pool->stale > others)
        pool->stale = others;
    reserved -= pool->stale;
    if (reserved % LARGE)
        p->small = true;
    // No other call has begun since: it holds more than all of them together were to have.
    if (pool->begun == s->begun && reserved > s->charged + s->underway)
        p->rounds = true;
    uint64_t granule = granule_locked(p);
    return reserved > granule ? reserved - granule : 0;
}

// What is charged to a pool beyond what it holds it has given up. The charge is read before the
// driver is asked: what the program takes meanwhile can only make the pool hold more. *missing: the
// reverse, as far as it can be told.
static uint64_t compare(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t *missing) {
    uint32_t notify = 0;
    uint64_t given = 0;
    *missing = 0;
    for (int tries = 0; tries < 4; tries++) {
        struct sums s = sums_of(root, pool);
        uint64_t reserved = reserved_by(root, s.kind, s.handle, s.device);
        if (reserved == UINT64_MAX)
            break;
        struct ga_cuda_pools *p = begin(root);
        bool alone = is_of(pool, &s) && pool->gives == s.gives;
        uint64_t charge = alone ? charge_locked(p, pool, reserved, &s) : 0;
        bool still = alone && pool->begun == s.begun && pool->changes == s.changes;
        if (alone && s.charged > charge) {
            pool->doubt = true;
            given = give_locked(root, pool, s.charged - charge, &notify);
        }
        if (still && charge > s.charged + s.underway)
            *missing = charge - s.charged - s.underway;
        end(p);
        if (still || given || !is_of(pool, &s))
            break;
    }
    tell(root, notify);
    return given;
}

static uint64_t settle(struct ga_root *root, struct ga_cuda_pool *pool) {
    uint64_t missing;
    if (sums_of(root, pool).kept == 0)
        return 0;
    return compare(root, pool, &missing);
}

// The driver does not say what the pool holds: it is taken to have used what it kept.
static void use_kept(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes) {
    uint32_t notify = 0;
    struct ga_cuda_pools *p = begin(root);
    give_locked(root, pool, bytes, &notify);
    end(p);
    tell(root, notify);
}

// More than what the pool has been charged with is charged now.
static bool charge_more(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes) {
    uint16_t tag;
    uint32_t device = (uint32_t)pool->device;
    uint64_t changes = sums_of(root, pool).changes;
    if (!ga_admit(root, device, bytes, GA_MEMORY_ASYNC, &tag))
        return false;
    struct ga_cuda_pools *p = begin(root);
    refresh(root, pool);
    bool same = pool->changes == changes && pool->tag == tag;
    if (same) {
        pool->charged += bytes;
        keep_locked(root, pool, bytes, tag);
    }
    end(p);
    if (!same)
        ga_release(root, device, bytes, tag);
    return true;
}

// Whether a block that a user had again may be new memory all the same.
static bool is_in_doubt(struct ga_root *root, struct ga_cuda_pool *pool,
                        const struct ga_cuda_pool_user *user) {
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    ga_self_lock(&p->lock);
    if (pool->sole.id == 0)
        pool->sole = *user;
    if (user->id == 0 || !is_same(&pool->sole, user))
        pool->doubt = true;
    bool doubt = pool->doubt;
    ga_self_unlock(&p->lock);
    return doubt;
}

bool ga_cuda_pool_balance(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t admitted,
                          const struct ga_cuda_pool_user *user) {
    if (!is_in_doubt(root, pool, user) && admitted == 0)
        return true;
    struct sums s = sums_of(root, pool);
    if (s.kind == NAMELESS || !(s.kind == GRAPHS ? (void *)GA_REAL(cuDeviceGetGraphMemAttribute)
                                                 : (void *)GA_REAL(cuMemPoolGetAttribute))) {
        use_kept(root, pool, admitted);
        return true;
    }
    for (int tries = 0; tries < 4; tries++) {
        uint64_t missing;
        compare(root, pool, &missing);
        if (missing == 0)
            return true;
        if (!charge_more(root, pool, missing))
            return false;
    }
    return true;
}

static bool trim(struct ga_root *root, const struct sums *s, uint64_t keep) {
    if (s->kind == GRAPHS)
        return GA_ASK(cuDeviceGraphMemTrim, ga_cuda_device_ordinal(root, (uint32_t)s->device));
    return s->handle && GA_ASK(cuMemPoolTrimTo, s->handle, keep);
}

// Has a pool give up so many bytes, or all that it can where that is not enough: it gives up
// whole pieces of memory, and what is charged to it is spread over them.
static uint64_t squeeze(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes) {
    struct sums s = sums_of(root, pool);
    if (bytes > s.kept)
        bytes = s.kept;
    if (bytes == 0 || s.untrimmed == s.changes)
        return 0;
    uint64_t given = trim(root, &s, s.charged - bytes) ? settle(root, pool) : 0;
    if (given < bytes && trim(root, &s, 0))
        given += settle(root, pool);
    if (given < bytes) {
        uint64_t changes = sums_of(root, pool).changes;
        struct ga_cuda_pools *p = begin(root);
        pool->untrimmed = changes;
        end(p);
    }
    return given;
}

void ga_cuda_pool_shed(struct ga_root *root, struct ga_cuda_pool *pool) {
    struct sums s = sums_of(root, pool);
    trim(root, &s, s.charged);
}

static uint64_t reap_pool(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t wanted) {
    uint64_t given = settle(root, pool);
    return given >= wanted ? given : given + squeeze(root, pool, wanted - given);
}

// The next one on a device, or the first. A record may stand for another pool at any moment.
static struct ga_cuda_pool *next_on(struct ga_cuda_pools *p, const struct ga_cuda_pool *pool,
                                    int device) {
    ga_self_lock(&p->lock);
    struct ga_cuda_pool *next = pool ? pool->next : p->first;
    while (next && (next->device != device || next->kind == UNUSED))
        next = next->next;
    ga_self_unlock(&p->lock);
    return next;
}

uint64_t ga_cuda_pool_reap(struct ga_root *root, uint32_t device, uint64_t wanted) {
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    uint64_t given = 0;
    struct ga_cuda_pool *pool = next_on(p, NULL, (int)device);
    for (; pool; pool = next_on(p, pool, (int)device))
        given += reap_pool(root, pool, wanted > given ? wanted - given : 0);
    return given;
}

// So often in a row bytes have to come of pools, before these are asked first for a while.
#define IN_A_ROW 4
#define FOR_A_WHILE 64

bool ga_cuda_pool_is_strait(struct ga_root *root, uint32_t device) {
    _Atomic uint32_t *strait = &ga_cuda(root)->pools.strait[device];
    uint32_t now = atomic_load(strait);
    return now > IN_A_ROW && atomic_compare_exchange_strong(strait, &now, now - 1);
}

void ga_cuda_pool_asked_for(struct ga_root *root, uint32_t device, bool of_pools) {
    _Atomic uint32_t *strait = &ga_cuda(root)->pools.strait[device];
    uint32_t now = atomic_load(strait);
    if (!of_pools)
        atomic_store(strait, 0);
    else
        atomic_store(strait, now < IN_A_ROW ? now + 1 : IN_A_ROW + FOR_A_WHILE);
}

// One pool, after a call that may have made it give up something.
static void settle_now(struct ga_root *root, struct ga_cuda_pool *pool) {
    if (!ga_mutex_lock(&ga_cuda(root)->asking, 100))
        return; // whoever reaps next will see it
    int mode = ga_cuda_capture_exchange(GA_CUDA_CAPTURE_MODE_RELAXED);
    settle(root, pool);
    ga_cuda_capture_exchange(mode);
    ga_mutex_unlock(&ga_cuda(root)->asking);
}

void ga_cuda_pool_lost(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes,
                       uint16_t tag) {
    uint32_t notify = 0;
    struct ga_cuda_pools *p = begin(root);
    keep_locked(root, pool, bytes, tag);
    lose_block_locked(root, pool, &notify);
    end(p);
    tell(root, notify);
}

bool ga_cuda_pool_lose(struct ga_root *root, const struct ga_entry *entry) {
    struct ga_cuda_pool *pool = ga_cuda_pool_of(entry);
    if (pool)
        ga_cuda_pool_lost(root, pool, entry->bytes, entry->tag);
    return pool != NULL;
}

void ga_cuda_pool_freed(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes,
                        uint16_t tag) {
    ga_cuda_pool_lost(root, pool, bytes, tag);
    settle_now(root, pool);
}

// The program's own calls

// Managed memory without a device of its own goes where it is used: such a pool is its first
// stream's, which the first allocation tells.
ga_result ga_cuda_pool_met(ga_result result, const ga_pool *pool, const struct ga_cu_location *at,
                           int type) {
    struct ga_root *root = result == GA_CUDA_SUCCESS && pool && at ? ga_root_get() : NULL;
    if (!root)
        return result;
    int device = ga_cuda_in_host(at->type) ? GA_CUDA_POOL_IN_HOST : ga_cuda_device_at(root, at);
    if (device >= 0 || type != GA_CUDA_ALLOCATION_MANAGED)
        find_or_make(root, *pool, device, ORDINARY);
    return result;
}

static void set_handle(struct ga_root *root, struct ga_cuda_pool *pool, ga_pool handle) {
    bool held = ga_mutex_lock(&ga_cuda(root)->asking, 5000);
    struct ga_cuda_pools *p = &ga_cuda(root)->pools;
    ga_self_lock(&p->lock);
    pool->handle = handle;
    ga_self_unlock(&p->lock);
    if (held)
        ga_mutex_unlock(&ga_cuda(root)->asking);
}

// From its end on nothing may be asked of a pool; its handle is forgotten before, while nobody
// asks, because the driver may give it out again at once. Its blocks live on, and what it holds is
// gone with the last of them.
ga_result ga_cuda_pool_destroy(GA_FN_cuMemPoolDestroy *real, ga_pool handle) {
    struct ga_root *root = ga_root_get();
    struct ga_cuda_pool *pool = root ? pool_of(root, handle, 0, ORDINARY) : NULL;
    if (!pool) {
        ga_result result = real(handle);
        if (root && result == GA_CUDA_SUCCESS)
            ga_import_sweep(root, (uint64_t)(uintptr_t)handle);
        return result;
    }
    bool ours = pool->device >= 0;
    uint32_t notify = 0;
    struct ga_cuda_pools *p = begin(root);
    pool->blocks += ours; // so that it does not end before the driver has spoken
    end(p);
    set_handle(root, pool, NULL);
    struct ga_cuda_pools *changing = ga_cuda_pool_change_begin(root);
    ga_result result = real(handle);
    ga_cuda_pool_change_end(changing);
    if (result != GA_CUDA_SUCCESS)
        set_handle(root, pool, handle);
    else
        ga_import_sweep(root, (uint64_t)(uintptr_t)handle);
    begin(root);
    if (ours)
        lose_block_locked(root, pool, &notify);
    else if (result == GA_CUDA_SUCCESS)
        pool->kind = UNUSED;
    end(p);
    tell(root, notify);
    return result;
}

ga_result ga_cuda_pool_trim(GA_FN_cuMemPoolTrimTo *real, ga_pool handle, size_t keep) {
    struct ga_root *root = ga_root_get();
    ga_result result = real(handle, keep);
    struct ga_cuda_pool *pool =
        root && result == GA_CUDA_SUCCESS ? pool_of(root, handle, 0, ORDINARY) : NULL;
    if (pool && pool->device >= 0)
        settle_now(root, pool);
    return result;
}

ga_result ga_cuda_pool_trim_graphs(GA_FN_cuDeviceGraphMemTrim *real, ga_cu_device device) {
    struct ga_root *root = ga_root_get();
    ga_result result = real(device);
    int number = root && result == GA_CUDA_SUCCESS ? ga_cuda_device_number(root, device) : -1;
    struct ga_cuda_pool *pool = number >= 0 ? pool_of(root, NULL, number, GRAPHS) : NULL;
    if (pool)
        settle_now(root, pool);
    return result;
}
