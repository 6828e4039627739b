// SPDX-License-Identifier: Apache-2.0
// This header declares what start.c knows about the start of this process, and how it starts
// programs. spawn.go is the only caller. No function allocates, so that each may run between fork
// and exec.
#pragma once

#include <stdint.h>
#include <sys/types.h>

// Returns the signals with which this process was started: the ignored ones if `ignored` is 1,
// otherwise the blocked ones. Bit n - 1 stands for signal n.
uint64_t gs_inherited(int ignored);

// Returns the PID that this process's parent had at the start; 0: the parent is outside of this PID
// namespace.
pid_t gs_parent(void);

// A program to start.
struct gs_program {
    const char *path;
    char **arguments;   // ends with NULL
    char **environment; // ends with NULL; the child may write to the strings
    // Places in environment for the PID of the program; NULL: none. Each place has room for
    // GS_DIGITS characters and a zero byte.
    char *own_pid[2];
    int death_signal; // sent to the program when the calling thread of this process ends; 0: none
};

enum { GS_DIGITS = 20 };

// Starts a program in a child process. Returns its PID, or -errno on failure.
pid_t gs_start(const struct gs_program *program);

// Replaces this process by a program. If its death_signal is not 0, that signal is sent when the
// thread that started this process ends. Returns -errno on failure: the signal dispositions are
// then those of the start, and the caller must end. Returns -ESRCH if death_signal is not 0 and the
// parent has ended.
int gs_exec(const struct gs_program *program);
