// SPDX-License-Identifier: Apache-2.0
//
// Table of cuGetProcAddress's answers, as measured on driver 555, generated from
// data/resolve-555.tsv. The rows are sorted by name, then flags.
#ifndef SIMCUDA_RESOLVE_H
#define SIMCUDA_RESOLVE_H

struct resolve_step {
    unsigned version; // first version with this answer
    void *symbol;     // NULL: only a status
    unsigned char status;
};

struct resolve_row {
    const char *name;
    unsigned char flags, count;
    struct resolve_step step[4];
};

extern const struct resolve_row resolve_table[];
extern const unsigned resolve_rows;

#endif
