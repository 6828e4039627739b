// SPDX-License-Identifier: Apache-2.0
//
// Handles look like pointers to unmapped memory, so using one as a pointer faults. By default no
// handle is used twice, so that the use of an ended object is found. A machine can be configured to
// use handles again as soon as possible, as real drivers do whose handles are addresses. It can
// also count the handles of memory, of libraries and of arrays separately, so that they equal other
// handles: CUDA does not forbid that.

#include "driver.h"

#include <stdlib.h>

#define HANDLE_FIRST 0x510000000000ull

enum { HANDLE_STEP = 64 };

struct entry {
    uintptr_t handle; // 0: empty
    void *object;
    enum handle_type type;
};

static struct {
    struct entry *table; // linear probing, a power of two
    size_t size, used;
    uint64_t next[4];   // next handle of each series
    uintptr_t *dropped; // handles to use again, the newest first
    size_t dropped_count, dropped_size;
} handles;

static size_t home(uintptr_t handle) {
    return (size_t)((handle / HANDLE_STEP * 0x9e3779b97f4a7c15ull) >> 20) & (handles.size - 1);
}

// Returns the series of a type. Handles of one series differ from each other, and can equal handles
// of another series.
static unsigned series(enum handle_type type) {
    if (!drv.sim->config.handles_apart)
        return 0;
    switch (type) {
    case HANDLE_MEMORY:
        return 1;
    case HANDLE_LIBRARY:
        return 2;
    case HANDLE_ARRAY:
    case HANDLE_MIPMAP:
        return 3;
    default:
        return 0;
    }
}

static void insert(struct entry e) {
    size_t i = home(e.handle);
    while (handles.table[i].handle)
        i = (i + 1) & (handles.size - 1);
    handles.table[i] = e;
}

static void grow(void) {
    struct entry *old = handles.table;
    size_t old_size = handles.size;
    handles.size = old_size ? old_size * 2 : 64;
    handles.table = calloc(handles.size, sizeof *handles.table);
    for (size_t i = 0; i < old_size; i++)
        if (old[i].handle)
            insert(old[i]);
    free(old);
}

void handle_restore(enum handle_type type, uintptr_t handle, void *object) {
    if (handles.used * 2 >= handles.size)
        grow();
    handles.used++;
    insert((struct entry){handle, object, type});
}

uintptr_t handle_new(enum handle_type type, void *object) {
    uintptr_t h = handles.dropped_count ? handles.dropped[--handles.dropped_count]
                                        : HANDLE_FIRST + HANDLE_STEP * ++handles.next[series(type)];
    handle_restore(type, h, object);
    return h;
}

static struct entry *find(enum handle_type type, uintptr_t handle) {
    if (!handles.size || !handle)
        return NULL;
    for (size_t i = home(handle); handles.table[i].handle; i = (i + 1) & (handles.size - 1))
        if (handles.table[i].handle == handle && series(handles.table[i].type) == series(type))
            return &handles.table[i];
    return NULL;
}

void *handle_get(enum handle_type type, uintptr_t handle) {
    struct entry *e = find(type, handle);
    return e && e->type == type ? e->object : NULL;
}

// Allows a handle to be used again. Without memory for the list it is never used again.
void handle_recycle(uintptr_t handle) {
    if (!drv.sim->config.reuse_handles || drv.sim->config.handles_apart)
        return;
    if (handles.dropped_count == handles.dropped_size) {
        size_t size = handles.dropped_size ? handles.dropped_size * 2 : 64;
        uintptr_t *more = realloc(handles.dropped, size * sizeof *more);
        if (!more)
            return;
        handles.dropped = more;
        handles.dropped_size = size;
    }
    handles.dropped[handles.dropped_count++] = handle;
}

void handle_end(enum handle_type type, uintptr_t handle) {
    struct entry *e = find(type, handle);
    if (!e)
        return;
    handles.used--;
    // Moves the entries behind the hole forward, as far as their home slot allows, so that no
    // search ends early.
    size_t mask = handles.size - 1, hole = (size_t)(e - handles.table);
    for (size_t i = (hole + 1) & mask; handles.table[i].handle; i = (i + 1) & mask) {
        size_t h = home(handles.table[i].handle);
        if (((i - h) & mask) >= ((i - hole) & mask)) {
            handles.table[hole] = handles.table[i];
            hole = i;
        }
    }
    handles.table[hole].handle = 0;
}

void handle_drop(enum handle_type type, uintptr_t handle) {
    bool was = find(type, handle) != NULL;
    handle_end(type, handle);
    if (was)
        handle_recycle(handle);
}
