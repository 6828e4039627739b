// SPDX-License-Identifier: Apache-2.0
#include "hook/interfaces.h"

#include "cuda/hooks.h"
#include "nvml/hooks.h"
#include "opencl/hooks.h"

struct ga_interface *const ga_interfaces[GA_INTERFACES] = {
    &ga_cuda_interface,
    &ga_nvml_interface,
    &ga_opencl_interface,
};
