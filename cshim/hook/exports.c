// SPDX-License-Identifier: Apache-2.0
// Says which of the two builds of the library this is. exports.h has the declaration.
#include "hook/exports.h"

// This file is compiled once for each of the two builds, which share all other objects. So it is
// not part of the unit that is optimised as a whole.
#ifdef GA_WITHOUT_EXPORTS
const bool ga_exports = false;
#else
const bool ga_exports = true;
#endif
