// SPDX-License-Identifier: Apache-2.0
// A client of the daemon with blocking system calls. It sends the messages that the shim sends,
// without the other parts of the shim. Any error ends the program.
#ifndef BENCH_LINK_H
#define BENCH_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "core/wire.h"

// Prints WHY and the text of errno, and ends the program.
_Noreturn void die(const char *why);

// Connects to a daemon's socket.
int link_connect(const char *path);

// Sends a message and receives the reply, with the shim's system calls: sendmsg, ppoll, recvmsg.
// The reply must have a good status and a body of at least the given length.
void link_exchange(int fd, uint16_t type, const void *body, size_t size, void *reply,
                   size_t reply_size);

// Opens a session and keeps its page mapped.
void link_hello(int fd);

// Opens the session's lease on the device with this UUID ("GPU-…") and returns its slot.
uint32_t link_attach(int fd, const char *uuid);

#endif
