// SPDX-License-Identifier: Apache-2.0
// Macros by which wrappers call their functions (hooks.c of each interface includes this). A call
// passes the vendor's function, the extra arguments of the row, and the program's arguments.
#ifndef GA_ROW_H
#define GA_ROW_H

#include <errno.h>

#define GA_ROW_LIST(...) __VA_ARGS__
#define GA_ROW_APPLY(function, ...) function(__VA_ARGS__)
#define GA_ROW_CALL(arguments, function, ...)                                                      \
    GA_ROW_APPLY(function, real, ##__VA_ARGS__, GA_ROW_LIST arguments)

// Keeps errno to the end of the block: programs may see errno values of the vendor, but not of this
// library.
struct ga_row_errno {
    int *at;
    int was;
};
static inline void ga_row_restore_errno(const struct ga_row_errno *e) {
    *e->at = e->was;
}
#define GA_ROW_KEEPS_ERRNO                                                                         \
    __attribute__((unused,                                                                         \
                   cleanup(ga_row_restore_errno))) struct ga_row_errno ga_row_errno_was = {&errno, \
                                                                                           errno}

#endif
