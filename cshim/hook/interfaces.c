// SPDX-License-Identifier: Apache-2.0
// The list of interfaces, and checks that their states and key spaces do not overlap.
#include "hook/interfaces.h"

#include "cuda/hooks.h"
#include "cuda/state.h"
#include "memory/state.h"
#include "nvml/hooks.h"
#include "nvml/nvml.h"
#include "opencl/hooks.h"
#include "opencl/state.h"
#include "vulkan/memory.h"

_Static_assert(GA_CUDA_STATE + sizeof(struct ga_cuda_state) <= GA_MEMORY_STATE &&
                   GA_MEMORY_STATE + sizeof(struct ga_memory_state) <= GA_OPENCL_STATE &&
                   GA_OPENCL_STATE + sizeof(struct ga_opencl_state) <= GA_NVML_STATE &&
                   GA_NVML_STATE + sizeof(struct ga_nvml_state) <= GA_ROOT_STATES,
               "what each keeps has a place behind the root for itself");

_Static_assert((int)GA_SPACE_PLAIN < (int)GA_SPACE_MEMORY &&
                   (int)GA_SPACES_MEMORY_END <= (int)GA_SPACE_CUDA_ARRAY &&
                   (int)GA_SPACES_CUDA_END <= (int)GA_SPACE_OPENCL &&
                   (int)GA_SPACES_OPENCL_END <= (int)GA_SPACE_VULKAN &&
                   (int)GA_SPACES_VULKAN_END <= (int)GA_SPACES,
               "no two have a space of keys in common");

struct ga_interface *const ga_interfaces[GA_INTERFACES] = {
    &ga_cuda_interface,
    &ga_nvml_interface,
    &ga_opencl_interface,
};
