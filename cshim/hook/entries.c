// SPDX-License-Identifier: Apache-2.0
// The code of all entries, as one block of assembly, for each processor.
#include "hook/entries.h"

void *_Atomic ga_entry_targets[GA_ENTRIES];

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define BEGIN                                                                                      \
    ".text\n"                                                                                      \
    ".p2align 4\n"                                                                                 \
    ".globl ga_entry_code\n"                                                                       \
    ".hidden ga_entry_code\n"                                                                      \
    ".type ga_entry_code, %function\n"                                                             \
    "ga_entry_code:\n"                                                                             \
    ".cfi_startproc\n"                                                                             \
    ".set ga_entry_at, 0\n"                                                                        \
    ".rept " TEXT(GA_ENTRIES) "\n"
#define END                                                                                        \
    ".p2align 4\n"                                                                                 \
    ".set ga_entry_at, ga_entry_at + 8\n"                                                          \
    ".endr\n"                                                                                      \
    ".cfi_endproc\n"                                                                               \
    ".size ga_entry_code, .-ga_entry_code\n"

// An entry keeps all registers and the stack of its caller. The exception is x16, which a linker
// may use between a call and its function.
#if defined(__x86_64__)
__asm__(BEGIN "endbr64\n"
              "jmp *(ga_entry_targets + ga_entry_at)(%rip)\n" END);
#elif defined(__aarch64__)
__asm__(BEGIN "hint #34\n"
              "adrp x16, ga_entry_targets + ga_entry_at\n"
              "ldr x16, [x16, #:lo12:ga_entry_targets + ga_entry_at]\n"
              "br x16\n" END);
#endif
