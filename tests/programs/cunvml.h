// SPDX-License-Identifier: Apache-2.0
// NVML as programs use it: linked (HOW_LINK), or by dlopen and dlsym.
#ifndef CUNVML_H
#define CUNVML_H

#include <stddef.h>
#include <stdint.h>

// Each returns NVML's code. The device is the one of this index.

// answer: free, used, total; with v2 also what is reserved.
int nvml_memory(unsigned index, int v2, uint64_t answer[4]);

// kind: "compute", "graphics" or "mps", or "details"; version: 1 to 3, or 0 for details. text gets
// "PID:BYTES" for each process, up to room of them; count what NVML says there are.
int nvml_processes(unsigned index, const char *kind, int version, unsigned room, unsigned *count,
                   char *text, size_t size);
// How busy processes are: text gets " PID" for each, up to room of them; 0 asks how many there are.
int nvml_utilization(unsigned index, unsigned room, unsigned *count, char *text, size_t size);
int nvml_utilizations(unsigned index, unsigned room, unsigned *count, char *text, size_t size);

#endif
