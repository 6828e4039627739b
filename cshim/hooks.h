// SPDX-License-Identifier: Apache-2.0
// The wrappers that hooks.def generates.
#ifndef GA_HOOKS_H
#define GA_HOOKS_H

#include <stddef.h>

// What the program gets for a row's function, or NULL for a row that is not wrapped.
void *ga_hooks_wrapper(size_t row);

#endif
