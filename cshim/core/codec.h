// SPDX-License-Identifier: Apache-2.0
// Validation of messages from the daemon: message.c calls it before it reads anything else of a
// message. The Go side is ipc/codec.go; the tests in cshimtest compare the two. Pure functions, no
// locks.
#ifndef GA_CODEC_H
#define GA_CODEC_H

#include <stdbool.h>
#include <stddef.h>

#include "core/wire.h"

// Reports whether n bytes are a reply of this protocol, with the body that its type and status
// demand. A reply of another protocol version is valid if its status says so, because the header
// has the same meaning in all versions.
bool ga_codec_is_reply(const struct ga_wire_header *header, size_t n);

#endif
