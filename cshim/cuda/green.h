// SPDX-License-Identifier: Apache-2.0
// Wrappers for green contexts, called by hooks.c. A green context is a part of a device's
// multiprocessors. It counts as a context, and keeps the primary context alive, which its memory
// belongs to. Its streams count as streams.
#ifndef GA_CUDA_GREEN_H
#define GA_CUDA_GREEN_H

#include "core/root.h"
#include "cuda/driver.h"

ga_result ga_cuda_green_create(GA_FN_cuGreenCtxCreate *real, ga_green *green, void *resources,
                               ga_cu_device device, unsigned int flags);
ga_result ga_cuda_green_destroy(GA_FN_cuGreenCtxDestroy *real, ga_green green);
ga_result ga_cuda_green_convert(GA_FN_cuCtxFromGreenCtx *real, ga_context *context, ga_green green);

#endif
