// SPDX-License-Identifier: Apache-2.0
// Messages, without stdio and without allocation: a line is formatted in a stack
// buffer (%u %x %d for 64-bit values, %s, and %t for a text of the daemon's, of up to GA_TEXT_SIZE
// bytes) and written by one write(2). What is no printable character becomes a blank.
#ifndef GA_LOG_H
#define GA_LOG_H

#include <stddef.h>
#include <stdint.h>

// Reads GPUARB_LOG and GPUARB_QUIET, once in a process; forked children keep the values. Called at
// the first GPU call, and before the first line if that comes earlier.
void ga_log_read_environment(void);

// For who turned messages on with GPUARB_LOG=FILE|stderr; at most GA_LOG_LINES lines.
void ga_log(const char *format, ...);
// On stderr whatever GPUARB_LOG says, unless GPUARB_QUIET does: the few lines that the user must
// see.
void ga_log_user(const char *format, ...);

// Formats into line (of size bytes, NUL-terminated) and returns the length.
size_t ga_log_format(char *line, size_t size, const char *format, ...);

#define GA_LOG_LINES 200

#endif
