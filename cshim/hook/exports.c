// SPDX-License-Identifier: Apache-2.0
#include "hook/exports.h"

// Compiled once for each build; outside of the optimiser's one unit, which serves both.
#ifdef GA_WITHOUT_EXPORTS
const bool ga_exports = false;
#else
const bool ga_exports = true;
#endif
