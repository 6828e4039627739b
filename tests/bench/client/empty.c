// SPDX-License-Identifier: Apache-2.0
// A shared object with nothing in it: what any preload costs, whatever it does.
extern const char bench_empty[];
const char bench_empty[] = "";
