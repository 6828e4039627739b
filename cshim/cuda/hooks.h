// SPDX-License-Identifier: Apache-2.0
// CUDA as an interface.
#ifndef GA_HOOKS_H
#define GA_HOOKS_H

#include "core/interface.h"

extern struct ga_interface ga_cuda_interface;

#endif
