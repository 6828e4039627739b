// SPDX-License-Identifier: Apache-2.0
// The interfaces that this library knows.
#ifndef GA_INTERFACES_H
#define GA_INTERFACES_H

#include "core/interface.h"

extern struct ga_interface *const ga_interfaces[GA_INTERFACES]; // NULL behind the last

#endif
