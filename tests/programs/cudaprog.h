// SPDX-License-Identifier: Apache-2.0
// What the parts of cudaprog share: a command, the names that it gives to what the driver
// hands out, and the tables of commands.
#ifndef CUDAPROG_H
#define CUDAPROG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cudriver.h"

#define WORDS 16
struct command {
    char *word[WORDS];
    int words;
};
// Says "what?" and ends the program.
void misunderstood(const struct command *c) __attribute__((noreturn));
// The one line that answers a command: more follows an "ok".
void answer(const struct command *c, CUresult result, const char *more);

// The i-th word as what it has to be. A size may end in K, M, G or T.
const char *word(const struct command *c, int i);
uint64_t number(const struct command *c, int i);
uint64_t number_or(const struct command *c, int i, uint64_t otherwise);
CUstream stream(const struct command *c, int i);
bool ends_with(const char *text, const char *end);

// What a name stands for: an address or a handle. Names are kept, also when what they stood for
// was freed.
struct name {
    char text[32];
    uint64_t value;
    uint64_t size;
    uint64_t *many; // of fill and many
    size_t count;
};
struct name *lookup(const struct command *c, int i, bool make);
extern CUdevice device; // --device

struct verb {
    const char *name;
    void (*run)(const struct command *c);
};
// Those of cudaprog_memory.c and its neighbours, each ended by a row without a name.
extern const struct verb memory_verbs[], threads_verbs[], arrays_verbs[], mappings_verbs[],
    foreign_verbs[], places_verbs[], streams_verbs[], pools_verbs[], graphs_verbs[],
    contexts_verbs[], questions_verbs[], modules_verbs[];

// Of contexts: one as --context says (a word of that list, or a command's name).
CUresult make_context(const char *how, CUcontext *context);
CUresult make_green(void **green);

// Of places: what kind of place a DEVICE is from now on, and a word as such a place.
extern int place_type;
struct cu_location place(const struct command *c, int i);
struct access { // CUmemAccessDesc
    struct cu_location location;
    int flags;
};

// Of pools: one by its name, and what a new one is made by (CUmemPoolProps).
struct pool_properties {
    int type, handle_types, location_type, location;
    void *security;
    size_t most;
    unsigned char more[56];
};
struct pool_properties properties_on(CUdevice on);
CUresult named_pool(const struct command *c, int i, CUpool *pool);

#endif
