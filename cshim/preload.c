// SPDX-License-Identifier: Apache-2.0
// dlsym and dlvsym.
//
// They decide in C, and when the real one shall answer they jump to it with the
// caller's registers and return address untouched: RTLD_NEXT and RTLD_DEFAULT
// search from the object that the return address lies in, so an ordinary call from
// here would search from the wrong place.
#include <stddef.h>

#include "loader.h"
#include "resolve.h"

// Called from below alone; kept by name.
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
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "endbr64\n"
        "movq (%rsp), %rdx\n"
        "push %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "push %rsi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "subq $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "call decide_dlsym\n"
        "addq $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "pop %rsi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "pop %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "testq %rax, %rax\n"
        "jne 1f\n"
        "movq ga_loader_next_dlsym(%rip), %rcx\n"
        "testq %rcx, %rcx\n"
        "je 1f\n"
        "jmp *%rcx\n"
        "1: ret\n"
        ".cfi_endproc\n"
        ".size dlsym, .-dlsym\n"
        ".globl dlvsym\n"
        ".type dlvsym, @function\n"
        "dlvsym:\n"
        ".cfi_startproc\n"
        "endbr64\n"
        "movq (%rsp), %rcx\n"
        "push %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "push %rsi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "push %rdx\n"
        ".cfi_adjust_cfa_offset 8\n"
        "call decide_dlvsym\n"
        "pop %rdx\n"
        ".cfi_adjust_cfa_offset -8\n"
        "pop %rsi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "pop %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "testq %rax, %rax\n"
        "jne 1f\n"
        "movq ga_loader_next_dlvsym(%rip), %rcx\n"
        "testq %rcx, %rcx\n"
        "je 1f\n"
        "jmp *%rcx\n"
        "1: ret\n"
        ".cfi_endproc\n"
        ".size dlvsym, .-dlvsym\n");
#elif defined(__aarch64__)
// x0, x1, x2 hold the arguments, x30 the return address. x16 is the linker's scratch register,
// which a jump may use to reach any landing pad.
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, %function\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "hint #34\n" // bti c
        "stp x29, x30, [sp, #-32]!\n"
        ".cfi_def_cfa_offset 32\n"
        ".cfi_offset 29, -32\n"
        ".cfi_offset 30, -24\n"
        "mov x29, sp\n"
        "stp x0, x1, [sp, #16]\n"
        "mov x2, x30\n"
        "bl decide_dlsym\n"
        "mov x16, x0\n"
        "ldp x0, x1, [sp, #16]\n"
        "ldp x29, x30, [sp], #32\n"
        ".cfi_def_cfa_offset 0\n"
        ".cfi_restore 29\n"
        ".cfi_restore 30\n"
        "cbnz x16, 1f\n"
        "adrp x16, ga_loader_next_dlsym\n"
        "ldr x16, [x16, #:lo12:ga_loader_next_dlsym]\n"
        "cbz x16, 1f\n"
        "br x16\n"
        "1: mov x0, x16\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size dlsym, .-dlsym\n"
        ".globl dlvsym\n"
        ".type dlvsym, %function\n"
        "dlvsym:\n"
        ".cfi_startproc\n"
        "hint #34\n"
        "stp x29, x30, [sp, #-48]!\n"
        ".cfi_def_cfa_offset 48\n"
        ".cfi_offset 29, -48\n"
        ".cfi_offset 30, -40\n"
        "mov x29, sp\n"
        "stp x0, x1, [sp, #16]\n"
        "str x2, [sp, #32]\n"
        "mov x3, x30\n"
        "bl decide_dlvsym\n"
        "mov x16, x0\n"
        "ldr x2, [sp, #32]\n"
        "ldp x0, x1, [sp, #16]\n"
        "ldp x29, x30, [sp], #48\n"
        ".cfi_def_cfa_offset 0\n"
        ".cfi_restore 29\n"
        ".cfi_restore 30\n"
        "cbnz x16, 1f\n"
        "adrp x16, ga_loader_next_dlvsym\n"
        "ldr x16, [x16, #:lo12:ga_loader_next_dlvsym]\n"
        "cbz x16, 1f\n"
        "br x16\n"
        "1: mov x0, x16\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size dlvsym, .-dlvsym\n");
#endif
