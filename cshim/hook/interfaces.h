// SPDX-License-Identifier: Apache-2.0
// List of the interfaces that programs reach by symbol look-up; resolve.c searches it. Vulkan is
// missing, because its loader finds the library as a layer. To add an interface, see
// docs/development/adding-an-interface.md.
#ifndef GA_INTERFACES_H
#define GA_INTERFACES_H

#include "core/interface.h"

extern struct ga_interface *const ga_interfaces[GA_INTERFACES]; // NULL after the last

#endif
