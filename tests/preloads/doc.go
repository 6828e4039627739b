// Package preloads runs programs that bring code of their own in front of
// libc, with the shim beside it: built with each sanitizer of gcc and clang, with
// an allocator or another library preloaded, before the shim and after it, under
// valgrind, and with functions of their own in place of libc's. One program never
// touches a GPU; the others allocate on the simulated driver under a budget.
//
// The oracle is the program's output without the shim, and the simulated driver's count:
// a budget holds to the byte.
package preloads
