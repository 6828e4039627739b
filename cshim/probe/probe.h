// SPDX-License-Identifier: Apache-2.0
// State of a probe of one interface, and the functions that the files of the probe share. The probe
// has one thread and no locks.
#ifndef GA_PROBE_H
#define GA_PROBE_H

#include <link.h>
#include <stddef.h>

struct ga_probe {
    const char *interface;    // name of the interface on the command line
    const char *file;         // file name of the library that programs open; NULL: none
    void *driver;             // handle of that library
    void *handle;             // handle of libgpuarb.so in this process
    struct link_map *library; // object of libgpuarb.so
    size_t looked, missed;    // number of look-ups, and of those outside libgpuarb.so
    char misses[512];         // descriptions of the first look-ups outside
    unsigned int devices;     // number of devices that the interface reports
    char note[160];           // further remark for the user; "": none
};

// Checks whether a function lies in libgpuarb.so. way: how it was looked up. function NULL: not
// found.
void ga_probe_check(struct ga_probe *p, const char *name, const char *way, const void *function);

// Prints the answer and ends the process.
_Noreturn void ga_probe_answer(const struct ga_probe *p, const char *outcome, const char *detail);

// Probes Vulkan, whose loader is open.
void ga_probe_vulkan(struct ga_probe *p);

#endif
