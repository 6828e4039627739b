// SPDX-License-Identifier: Apache-2.0
// What the files of the probe share: one interface as this process meets it, and the answer.
#ifndef GA_PROBE_H
#define GA_PROBE_H

#include <link.h>
#include <stddef.h>

struct ga_probe {
    const char *interface;    // as the command line names it
    const char *file;         // the library that programs open, or NULL
    void *driver;             // that library's handle
    void *handle;             // of libgpuarb.so in this process, and
    struct link_map *library; // its object
    size_t looked, missed;    // look-ups, and those that led past it
    char misses[512];         // the first of these
    unsigned int devices;     // that the interface counts
    char note[160];           // what else there is to say, or ""
};

// Judges a function by where it lies, as a program has come by it; NULL: there is none.
void ga_probe_look(struct ga_probe *p, const char *name, const char *way, const void *function);

// Prints the answer and ends the process.
_Noreturn void ga_probe_answer(const struct ga_probe *p, const char *outcome, const char *detail);

// Vulkan's part. The driver is open.
void ga_probe_vulkan(struct ga_probe *p);

#endif
