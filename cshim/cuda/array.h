// SPDX-License-Identifier: Apache-2.0
// Arrays and mipmapped arrays: charged with the bytes of their elements.
#ifndef GA_CUDA_ARRAY_H
#define GA_CUDA_ARRAY_H

#include "cuda/driver.h"

ga_result ga_cuda_array_create_v1(GA_FN_cuArrayCreate *real, ga_array *array,
                                  const struct ga_cu_array_v1 *descriptor);
ga_result ga_cuda_array_create(GA_FN_cuArrayCreate_v2 *real, ga_array *array,
                               const struct ga_cu_array *descriptor);
ga_result ga_cuda_array3d_create_v1(GA_FN_cuArray3DCreate *real, ga_array *array,
                                    const struct ga_cu_array3d_v1 *descriptor);
ga_result ga_cuda_array3d_create(GA_FN_cuArray3DCreate_v2 *real, ga_array *array,
                                 const struct ga_cu_array3d *descriptor);
ga_result ga_cuda_array_destroy(GA_FN_cuArrayDestroy *real, ga_array array);
ga_result ga_cuda_mipmap_create(GA_FN_cuMipmappedArrayCreate *real, ga_mipmap *mipmap,
                                const struct ga_cu_array3d *descriptor, unsigned int levels);
ga_result ga_cuda_mipmap_destroy(GA_FN_cuMipmappedArrayDestroy *real, ga_mipmap mipmap);

#endif
