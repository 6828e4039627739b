// SPDX-License-Identifier: Apache-2.0
// Green contexts: a part of a device's processors. One counts as a context and keeps the
// primary one, in which its memory lies; its streams are streams.
#ifndef GA_CUDA_GREEN_H
#define GA_CUDA_GREEN_H

#include "driver.h"
#include "root.h"

ga_result ga_cuda_green_create(GA_FN_cuGreenCtxCreate *real, ga_green *green, void *resources,
                               ga_cu_device device, unsigned int flags);
ga_result ga_cuda_green_destroy(GA_FN_cuGreenCtxDestroy *real, ga_green green);
ga_result ga_cuda_green_convert(GA_FN_cuCtxFromGreenCtx *real, ga_context *context, ga_green green);
// The device of a green context and the context that its streams are charged in; −1: not known.
int ga_cuda_green_device(struct ga_root *root, ga_green green, uint64_t *context);

#endif
