// SPDX-License-Identifier: Apache-2.0
// How a wrapper calls the function of its row: with the vendor's own, what the row adds, and the
// program's arguments.
#ifndef GA_ROW_H
#define GA_ROW_H

#define GA_ROW_LIST(...) __VA_ARGS__
#define GA_ROW_APPLY(function, ...) function(__VA_ARGS__)
#define GA_ROW_CALL(arguments, function, ...)                                                      \
    GA_ROW_APPLY(function, real, ##__VA_ARGS__, GA_ROW_LIST arguments)

#endif
