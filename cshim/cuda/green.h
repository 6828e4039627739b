// SPDX-License-Identifier: Apache-2.0
// Green contexts: a part of a device's processors. One counts as a context and keeps the
// primary one, in which its memory lies; its streams are streams.
#ifndef GA_CUDA_GREEN_H
#define GA_CUDA_GREEN_H

#include "core/root.h"
#include "cuda/driver.h"

ga_result ga_cuda_green_create(GA_FN_cuGreenCtxCreate *real, ga_green *green, void *resources,
                               ga_cu_device device, unsigned int flags);
ga_result ga_cuda_green_destroy(GA_FN_cuGreenCtxDestroy *real, ga_green green);
ga_result ga_cuda_green_convert(GA_FN_cuCtxFromGreenCtx *real, ga_context *context, ga_green green);

#endif
