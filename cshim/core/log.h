// SPDX-License-Identifier: Apache-2.0
// Messages without stdio and allocation. A line is formatted on the stack and written by one
// write(2). Formats: %u %x %d for 64-bit values, %s, and %t for text of the daemon, of up to
// GA_TEXT_SIZE bytes. Non-printable characters become spaces. All files of the library use this; no
// lock is taken.
#ifndef GA_LOG_H
#define GA_LOG_H

#include <stddef.h>
#include <stdint.h>

// Reads GPUARB_LOG and GPUARB_QUIET, once in a process; forked children keep the values. Called at
// the first GPU call, and before the first line if that comes earlier.
void ga_log_read_environment(void);

// Writes a line for users who set GPUARB_LOG=FILE|stderr; at most GA_LOG_LINES lines in a process.
void ga_log(const char *format, ...);
// Writes a line to stderr, unless GPUARB_QUIET is set: for the few lines that every user must see.
void ga_log_user(const char *format, ...);

// Formats into line (of size bytes, NUL-terminated) and returns the length.
size_t ga_log_format(char *line, size_t size, const char *format, ...);

#define GA_LOG_LINES 200

#endif
