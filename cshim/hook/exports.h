// SPDX-License-Identifier: Apache-2.0
// Tells which of the two builds of the library this is. libgpuarb.so exports the driver functions.
// no-exports/libgpuarb.so exports none of them: it is for programs with a library that has
// variables of these names, and that would store into the exported functions.
#ifndef GA_EXPORTS_H
#define GA_EXPORTS_H

#include <stdbool.h>

extern const bool ga_exports; // true: the driver functions are exported

#endif
