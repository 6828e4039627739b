// SPDX-License-Identifier: Apache-2.0
// What a message from the daemon has to be, before anything of it is read. The Go side has the
// same in ipc/codec.go, and cshimtest holds the two against each other.
#ifndef GA_CODEC_H
#define GA_CODEC_H

#include <stdbool.h>
#include <stddef.h>

#include "core/wire.h"

// Whether n bytes are a reply of this protocol, with the body that its type and status ask for. A
// reply of another version is one where it says so: its header means the same in every version.
bool ga_codec_is_reply(const struct ga_wire_header *header, size_t n);

#endif
