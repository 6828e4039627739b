// SPDX-License-Identifier: Apache-2.0
// Places, the choice of the held copy, and the targets of entries.
#include "hook/copies.h"

#include <dlfcn.h>

#include "core/lock.h"
#include "core/second_copy.h"
#include "hook/entries.h"
#include "hook/loader.h"

#define ROWS_MOST 512 // most rows of an interface

// Guards the choice of the held copy, and the targets of entries. No function of the loader may be
// called while it is held. The loader holds its own lock while it runs constructors, and a
// constructor that looks up a function wants this lock.
static struct ga_spin lock;

// Number of entries (entries.h) that the interfaces have reserved.
static _Atomic uint32_t entries_used;

void *ga_copies_own(const struct ga_interface *library, size_t place, size_t row) {
    return atomic_load(&library->own[place * library->rows + row]);
}

// Asks the loader whether a copy is still loaded at its addresses. Another file may be there by
// now.
static bool is_at_its_place(const struct ga_interface *library, size_t place) {
    const struct ga_copy *copy = &library->copies[place];
    const struct ga_loader *loader = ga_loader_get();
    void *probe = atomic_load(&copy->probe);
    struct ga_loader_object object;
    Dl_info info;
    return ga_loader_object(probe, &object) && object.first == atomic_load(&copy->first) &&
           object.end == atomic_load(&copy->end) && loader->dladdr &&
           loader->dladdr(probe, &info) && info.dli_saddr == probe;
}

// Reports whether a copy is still loaded. The loader is asked only if it has unloaded an object
// since the copy was last seen.
static bool is_loaded(struct ga_interface *library, size_t place) {
    struct ga_copy *copy = &library->copies[place];
    if (atomic_load(&copy->first) == 0)
        return false;
    uint64_t unloaded = ga_loader_unloaded();
    if (atomic_load(&copy->seen) == unloaded)
        return true;
    if (!is_at_its_place(library, place))
        return false;
    atomic_store(&copy->seen, unloaded);
    return true;
}

int ga_copies_at(struct ga_interface *library, const void *address) {
    for (size_t place = 0; place < GA_COPIES; place++)
        if ((uintptr_t)address >= atomic_load(&library->copies[place].first) &&
            (uintptr_t)address < atomic_load(&library->copies[place].end) &&
            is_loaded(library, place))
            return (int)place;
    return -1;
}

// Returns the number of the entry (entries.h) that stands for a function, given by its row, of the
// copy at a place.
static size_t entry_of(const struct ga_interface *library, size_t place, size_t row) {
    return atomic_load(&library->entries) - 1 + place * library->rows + row;
}

// Sets the targets of an interface's entries, if it has any: wrappers for the held copy, and for
// every copy of a shared interface; else the copy's own functions. The caller holds the lock.
static void redirect(struct ga_interface *library) {
    for (size_t i = 0; atomic_load(&library->entries) && i < GA_COPIES * library->rows; i++) {
        size_t place = i / library->rows;
        size_t row = i % library->rows;
        bool wraps = library->shared || place + 1 == atomic_load(&library->held);
        void *wrapper = wraps ? library->wrapper(row) : NULL;
        atomic_store(&ga_entry_targets[entry_of(library, place, row)],
                     wrapper ? wrapper : ga_copies_own(library, place, row));
    }
}

// Reserves the entries of an interface that gets a second copy. False: too few are left.
static bool reserve_entries(struct ga_interface *library) {
    uint32_t wanted = (uint32_t)(GA_COPIES * library->rows);
    if (atomic_load(&library->entries))
        return true;
    if (atomic_load(&entries_used) + wanted > GA_ENTRIES)
        return false;
    atomic_store(&library->entries, atomic_fetch_add(&entries_used, wanted) + 1);
    return true;
}

// Makes the copy at a place the held one, which wrappers call. The caller holds the lock.
static void hold(struct ga_interface *library, size_t place) {
    for (size_t row = 0; row < library->rows; row++)
        atomic_store(&library->functions[row], ga_copies_own(library, place, row));
    atomic_store(&library->first, atomic_load(&library->copies[place].first));
    atomic_store(&library->end, atomic_load(&library->copies[place].end));
    atomic_store(&library->held, (uint32_t)place + 1);
    redirect(library);
}

// Makes no copy the held one: wrappers have no function to call. The caller holds the lock.
static void release_held(struct ga_interface *library) {
    atomic_store(&library->held, 0);
    atomic_store(&library->pinned, 0);
    atomic_store(&library->first, 0);
    atomic_store(&library->end, 0);
    for (size_t row = 0; row < library->rows; row++)
        atomic_store(&library->functions[row], NULL);
    redirect(library);
}

bool ga_copies_holds(struct ga_interface *library) {
    uint32_t held = atomic_load(&library->held);
    if (held == 0)
        return false;
    if (is_loaded(library, held - 1))
        return true;
    ga_spin_lock(&lock);
    if (atomic_load(&library->held) == held)
        release_held(library);
    ga_spin_unlock(&lock);
    return false;
}

// Returns the loader's handle for the held copy. The caller holds the lock; a copy is held.
static void *handle_of_held(const struct ga_interface *library) {
    return atomic_load(&library->copies[atomic_load(&library->held) - 1].handle);
}

void ga_copies_hold(struct ga_interface *library, size_t place) {
    ga_spin_lock(&lock);
    if (atomic_load(&library->held) == 0)
        hold(library, place);
    void *handle = handle_of_held(library);
    ga_spin_unlock(&lock);
    if (library->on_held)
        library->on_held(library, handle);
}

// Copy that needs a place, and what the loader said of all copies before the lock was taken.
struct candidate {
    struct ga_loader_object object;
    void *handle;
    void *probe;
    void *functions[ROWS_MOST];
    uint64_t unloaded;
    uintptr_t
        gone[GA_COPIES]; // for each place: first byte of its copy if that was unloaded, else 0
};

// Frees the places whose copies were unloaded. The caller holds the lock.
static void sweep(struct ga_interface *library, const struct candidate *m) {
    for (size_t place = 0; place < GA_COPIES; place++) {
        struct ga_copy *copy = &library->copies[place];
        if (m->gone[place] == 0 || m->gone[place] != atomic_load(&copy->first))
            continue;
        if (atomic_load(&library->held) == place + 1)
            release_held(library);
        atomic_store(&copy->first, 0);
        atomic_store(&copy->end, 0);
        atomic_store(&copy->works, 0);
        atomic_store(&copy->reported, 0);
    }
}

// Returns the place of the copy that begins at an address, else the first free place; GA_COPIES:
// there is none. The caller holds the lock.
static size_t place_for(const struct ga_interface *library, uintptr_t first) {
    size_t found = GA_COPIES;
    for (size_t place = GA_COPIES; place-- > 0;) {
        uintptr_t there = atomic_load(&library->copies[place].first);
        if (there == first)
            return place;
        if (there == 0)
            found = place;
    }
    return found;
}

// Stores a copy at the place that it has already, or at the first free place. Returns the place;
// −1: no place is free, or there are no entries left. At place 0 no entries are needed. The caller
// holds the lock.
static int assign_place(struct ga_interface *library, const struct candidate *m) {
    size_t place = place_for(library, m->object.first);
    if (place == GA_COPIES || (place > 0 && !reserve_entries(library)))
        return -1;
    struct ga_copy *copy = &library->copies[place];
    for (size_t row = 0; row < library->rows; row++)
        atomic_store(&library->own[place * library->rows + row], m->functions[row]);
    atomic_store(&copy->handle, m->handle);
    atomic_store(&copy->probe, m->probe);
    atomic_store(&copy->first, m->object.first);
    atomic_store(&copy->end, m->object.end);
    atomic_store(&copy->seen, m->unloaded);
    redirect(library);
    return (int)place;
}

int ga_copies_add(struct ga_interface *library, const void *address, void *handle) {
    const struct ga_loader *loader = ga_loader_get();
    struct candidate m = {.handle = handle, .unloaded = ga_loader_unloaded()};
    if (library->rows > ROWS_MOST || !ga_loader_object(address, &m.object))
        return -1;
    m.probe = loader->dlsym(handle, library->probe);
    const char *name = library->names;
    for (size_t row = 0; row < library->rows; name += library->lengths[row] + 1, row++)
        m.functions[row] = loader->dlsym(handle, name);
    for (size_t place = 0; place < GA_COPIES; place++)
        m.gone[place] = is_loaded(library, place) ? 0 : atomic_load(&library->copies[place].first);
    ga_spin_lock(&lock);
    sweep(library, &m);
    int place = assign_place(library, &m);
    ga_spin_unlock(&lock);
    return place;
}

void *ga_copies_answer(const struct ga_interface *library, size_t place, size_t row) {
    void *function = library->of_copy ? library->of_copy(row, place) : NULL;
    if (function)
        return function;
    function = library->wrapper(row);
    if (!function)
        return ga_copies_own(library, place, row);
    bool direct = place == 0 && atomic_load(&library->held) == 1;
    return direct || !atomic_load(&library->entries) ? function
                                                     : ga_entry(entry_of(library, place, row));
}

// Keeps the copy at a place loaded for ever, because pointers into it are kept. Returns its path;
// NULL: the loader does not know it, or cannot keep the copy loaded.
static const char *pin(const struct ga_interface *library, size_t place) {
    const struct ga_loader *loader = ga_loader_get();
    void *probe = atomic_load(&library->copies[place].probe);
    Dl_info info;
    if (!probe || !loader->dladdr || !loader->dladdr(probe, &info))
        return NULL;
    bool stays = loader->dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) != NULL;
    return stays ? info.dli_fname : NULL;
}

// Notes that the copy at a place works, and decides whether it becomes the held one. Returns the
// place of a copy that works and is not held, −1 if there is none. The caller holds the lock.
static int decide(struct ga_interface *library, size_t place) {
    uint32_t held = atomic_load(&library->held);
    bool works = held != 0 && atomic_load(&library->copies[held - 1].works);
    atomic_store(&library->copies[place].works, 1);
    if (held == place + 1 || !works) {
        hold(library, place);
        return -1;
    }
    if (library->shared)
        return -1;
    if (place != 0)
        return (int)place;
    // Programs have wrappers, not entries, for the functions of place 0, and wrappers call the held
    // copy.
    hold(library, place);
    return (int)held - 1;
}

void ga_copies_works(struct ga_interface *library, size_t place) {
    ga_spin_lock(&lock);
    int beside = decide(library, place);
    size_t held = atomic_load(&library->held) - 1;
    void *handle = handle_of_held(library);
    ga_spin_unlock(&lock);
    const char *path = pin(library, held);
    if (path)
        atomic_store(&library->pinned, 1);
    if (library->on_held)
        library->on_held(library, handle);
    if (beside >= 0 && !atomic_exchange(&library->copies[beside].reported, 1))
        ga_second_copy_report(path, pin(library, (size_t)beside));
}
