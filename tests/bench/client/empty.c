// SPDX-License-Identifier: Apache-2.0
// An empty shared object, which measures the cost of any preload.
extern const char bench_empty[];
const char bench_empty[] = "";
