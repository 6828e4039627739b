// SPDX-License-Identifier: Apache-2.0
// Tells which build of the library this is; resolve.c reads it. libgpuarb.so exports the driver
// functions. no-exports/libgpuarb.so does not. It serves programs whose libraries have variables of
// these names, and would overwrite the exported functions.
#ifndef GA_EXPORTS_H
#define GA_EXPORTS_H

#include <stdbool.h>

extern const bool ga_exports; // true: the driver functions are exported

#endif
