// SPDX-License-Identifier: Apache-2.0
// Declares NVML's struct ga_interface: the table of hooks that hook/library.c reads.
#ifndef GA_NVML_HOOKS_H
#define GA_NVML_HOOKS_H

#include "core/interface.h"

extern struct ga_interface ga_nvml_interface;

#endif
