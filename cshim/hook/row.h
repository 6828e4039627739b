// SPDX-License-Identifier: Apache-2.0
// How a wrapper calls the function of its row: with the vendor's own, what the row adds, and the
// program's arguments; and what it keeps as it was.
#ifndef GA_ROW_H
#define GA_ROW_H

#include <errno.h>

#define GA_ROW_LIST(...) __VA_ARGS__
#define GA_ROW_APPLY(function, ...) function(__VA_ARGS__)
#define GA_ROW_CALL(arguments, function, ...)                                                      \
    GA_ROW_APPLY(function, real, ##__VA_ARGS__, GA_ROW_LIST arguments)

// The vendor's errno is the program's business, ours is not: from here to the end of its block.
struct ga_row_errno {
    int *at;
    int was;
};
static inline void ga_row_put_back(const struct ga_row_errno *e) {
    *e->at = e->was;
}
#define GA_ROW_KEEPS_ERRNO                                                                         \
    __attribute__((unused, cleanup(ga_row_put_back))) struct ga_row_errno ga_row_errno_was = {     \
        &errno, errno}

#endif
