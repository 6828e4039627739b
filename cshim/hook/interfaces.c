// SPDX-License-Identifier: Apache-2.0
#include "hook/interfaces.h"

#include "cuda/hooks.h"
#include "cuda/state.h"
#include "nvml/hooks.h"
#include "nvml/nvml.h"
#include "opencl/hooks.h"
#include "opencl/state.h"

// Alignment may cost each of them up to 64 bytes (core/interface.c).
_Static_assert(sizeof(struct ga_cuda_state) + sizeof(struct ga_nvml_state) +
                       sizeof(struct ga_opencl_state) + GA_INTERFACES * 64 <=
                   GA_ROOT_STATES,
               "what they keep has room behind the root");

struct ga_interface *const ga_interfaces[GA_INTERFACES] = {
    &ga_cuda_interface,
    &ga_nvml_interface,
    &ga_opencl_interface,
};
