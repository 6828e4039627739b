// SPDX-License-Identifier: Apache-2.0
// What a program is told of the device's memory: its budget.
#ifndef GA_CUDA_QUERY_H
#define GA_CUDA_QUERY_H

#include "cuda/driver.h"

ga_result ga_cuda_get_info_v1(GA_FN_cuMemGetInfo *real, unsigned int *room, unsigned int *total);
ga_result ga_cuda_get_info(GA_FN_cuMemGetInfo_v2 *real, size_t *room, size_t *total);
ga_result ga_cuda_total_v1(GA_FN_cuDeviceTotalMem *real, unsigned int *bytes, ga_cu_device device);
ga_result ga_cuda_total(GA_FN_cuDeviceTotalMem_v2 *real, size_t *bytes, ga_cu_device device);

#endif
