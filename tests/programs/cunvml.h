// SPDX-License-Identifier: Apache-2.0
// NVML as programs use it: linked (HOW_LINK), or by dlopen and dlsym.
#ifndef CUNVML_H
#define CUNVML_H

#include <stddef.h>
#include <stdint.h>

// Each function returns NVML's code. index: the device's index.

// answer: free, used, total; with v2 also what is reserved.
int nvml_memory(unsigned index, int v2, uint64_t answer[4]);

// Gets a list of processes. kind: "compute", "graphics", "mps" or "details"; version: 1 to 3, or 0
// for details. text gets "PID:BYTES" for each process, up to room processes. count gets NVML's
// number of processes.
int nvml_processes(unsigned index, const char *kind, int version, unsigned room, unsigned *count,
                   char *text, size_t size);
// Gets the utilisation by process. text gets " PID" for each, up to room processes; room 0 asks
// only for their number.
int nvml_utilization(unsigned index, unsigned room, unsigned *count, char *text, size_t size);
int nvml_utilizations(unsigned index, unsigned room, unsigned *count, char *text, size_t size);

#endif
