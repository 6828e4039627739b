// SPDX-License-Identifier: Apache-2.0
// dlsym and dlvsym, as this library exports them.
//
// They decide in C (resolve.c). If the real function must answer, they jump to it with the caller's
// registers and return address. A call would be wrong, because RTLD_NEXT and RTLD_DEFAULT search
// from the object that the return address lies in.
#include <stddef.h>

#include "hook/loader.h"
#include "hook/resolve.h"

// Called only by the assembly below, by name.
__attribute__((used)) static void *decide_dlsym(void *handle, const char *name,
                                                const void *caller) {
    return ga_resolve_decide(handle, name, NULL, caller);
}
__attribute__((used)) static void *decide_dlvsym(void *handle, const char *name,
                                                 const char *version, const void *caller) {
    return ga_resolve_decide(handle, name, version, caller);
}

#if defined(__x86_64__)
// rdi, rsi, rdx hold the arguments. Three pushes after the return address align the stack.
#define LOOK_UP(name, caller)                                                                      \
    __asm__(".text\n"                                                                              \
            ".globl " name "\n"                                                                    \
            ".type " name ", @function\n" name ":\n"                                               \
            ".cfi_startproc\n"                                                                     \
            "endbr64\n"                                                                            \
            "push %rdi\n"                                                                          \
            ".cfi_adjust_cfa_offset 8\n"                                                           \
            "push %rsi\n"                                                                          \
            ".cfi_adjust_cfa_offset 8\n"                                                           \
            "push %rdx\n"                                                                          \
            ".cfi_adjust_cfa_offset 8\n"                                                           \
            "movq 24(%rsp), %" caller "\n"                                                         \
            "call decide_" name "\n"                                                               \
            "pop %rdx\n"                                                                           \
            ".cfi_adjust_cfa_offset -8\n"                                                          \
            "pop %rsi\n"                                                                           \
            ".cfi_adjust_cfa_offset -8\n"                                                          \
            "pop %rdi\n"                                                                           \
            ".cfi_adjust_cfa_offset -8\n"                                                          \
            "testq %rax, %rax\n"                                                                   \
            "jne 1f\n"                                                                             \
            "movq ga_loader_next_" name "(%rip), %rcx\n"                                           \
            "testq %rcx, %rcx\n"                                                                   \
            "je 1f\n"                                                                              \
            "jmp *%rcx\n"                                                                          \
            "1: cmpq $-1, %rax\n"                                                                  \
            "jne 2f\n"                                                                             \
            "xorl %eax, %eax\n"                                                                    \
            "2: ret\n"                                                                             \
            ".cfi_endproc\n"                                                                       \
            ".size " name ", .-" name "\n")
LOOK_UP("dlsym", "rdx");
LOOK_UP("dlvsym", "rcx");
#elif defined(__aarch64__)
// x0, x1, x2 hold the arguments, x30 the return address. x16 is the linker's scratch register, by
// which a jump may reach any landing pad. hint #34 is bti c.
#define LOOK_UP(name, caller)                                                                      \
    __asm__(".text\n"                                                                              \
            ".globl " name "\n"                                                                    \
            ".type " name ", %function\n" name ":\n"                                               \
            ".cfi_startproc\n"                                                                     \
            "hint #34\n"                                                                           \
            "stp x29, x30, [sp, #-48]!\n"                                                          \
            ".cfi_def_cfa_offset 48\n"                                                             \
            ".cfi_offset 29, -48\n"                                                                \
            ".cfi_offset 30, -40\n"                                                                \
            "mov x29, sp\n"                                                                        \
            "stp x0, x1, [sp, #16]\n"                                                              \
            "str x2, [sp, #32]\n"                                                                  \
            "mov " caller ", x30\n"                                                                \
            "bl decide_" name "\n"                                                                 \
            "mov x16, x0\n"                                                                        \
            "ldr x2, [sp, #32]\n"                                                                  \
            "ldp x0, x1, [sp, #16]\n"                                                              \
            "ldp x29, x30, [sp], #48\n"                                                            \
            ".cfi_def_cfa_offset 0\n"                                                              \
            ".cfi_restore 29\n"                                                                    \
            ".cfi_restore 30\n"                                                                    \
            "cbnz x16, 1f\n"                                                                       \
            "adrp x16, ga_loader_next_" name "\n"                                                  \
            "ldr x16, [x16, #:lo12:ga_loader_next_" name "]\n"                                     \
            "cbz x16, 1f\n"                                                                        \
            "br x16\n"                                                                             \
            "1: cmn x16, #1\n"                                                                     \
            "csel x0, xzr, x16, eq\n"                                                              \
            "ret\n"                                                                                \
            ".cfi_endproc\n"                                                                       \
            ".size " name ", .-" name "\n")
LOOK_UP("dlsym", "x2");
LOOK_UP("dlvsym", "x3");
#endif
