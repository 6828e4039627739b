// SPDX-License-Identifier: Apache-2.0
// Which of the two builds of the library this is. The second one exports no driver functions, for
// programs with a library that has variables of these names: such a library's stores would go into
// the exported functions.
#ifndef GA_EXPORTS_H
#define GA_EXPORTS_H

#include <stdbool.h>

extern const bool ga_exports; // true: the driver functions are exported

#endif
