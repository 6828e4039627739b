// SPDX-License-Identifier: Apache-2.0
// Shared by the cudaprog_*.c: commands, the names that commands give to handles and addresses, and
// the tables of commands.
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
// Prints "what?" and ends the program.
void misunderstood(const struct command *c) __attribute__((noreturn));
// Prints the line that answers a command. more: text after "ok".
void answer(const struct command *c, CUresult result, const char *more);

// Return the i-th word, converted. A size may end in K, M, G or T.
const char *word(const struct command *c, int i);
uint64_t number(const struct command *c, int i);
uint64_t number_or(const struct command *c, int i, uint64_t otherwise);
CUstream stream(const struct command *c, int i);
bool ends_with(const char *text, const char *end);

// The address or handle that a name stands for. A name stays after its object was freed.
struct name {
    char text[32];
    uint64_t value;
    uint64_t size;
    uint64_t *many; // the blocks of the commands fill and many
    size_t count;
};
struct name *lookup(const struct command *c, int i, bool make);
extern CUdevice device; // value of --device

struct verb {
    const char *name;
    void (*run)(const struct command *c);
};
// The commands of the cudaprog_*.c. Each list ends with a row without a name.
extern const struct verb memory_verbs[], threads_verbs[], arrays_verbs[], mappings_verbs[],
    foreign_verbs[], places_verbs[], streams_verbs[], pools_verbs[], graphs_verbs[],
    contexts_verbs[], questions_verbs[], modules_verbs[];

// Makes a context. how: a value of --context, or a command's name.
CUresult make_context(const char *how, CUcontext *context);
CUresult make_green(void **green);

// Kind of location that DEVICE arguments stand for, and the conversion of a word to such a
// location.
extern int place_type;
struct cu_location place(const struct command *c, int i);
struct access { // CUmemAccessDesc
    struct cu_location location;
    int flags;
};

// Returns a pool by its name; and the properties of a new pool (CUmemPoolProps).
struct pool_properties {
    int type, handle_types, location_type, location;
    void *security;
    size_t most;
    unsigned char more[56];
};
struct pool_properties properties_on(CUdevice on);
CUresult named_pool(const struct command *c, int i, CUpool *pool);

#endif
