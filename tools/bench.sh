#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# bench.sh: runs every benchmark of the tree, Go and C, and keeps the output in build/bench.txt. The
# lines are in Go's benchmark format, for `go tool benchstat old.txt new.txt`. BENCH selects by
# name, COUNT repeats.
set -euo pipefail

: "${GO:=go}" "${MAKE:=make}" "${C_BENCHES:=}" "${BENCH:=.}" "${COUNT:=1}"

benchmarks() {
    local target
    "$GO" test -run '^$' -bench "$BENCH" -benchmem -count "$COUNT" -timeout 30m ./...
    for target in $C_BENCHES; do
        "$MAKE" --no-print-directory "$target" >&2
        if [ -x "build/$target" ]; then
            for _ in $(seq "$COUNT"); do
                "build/$target"
            done
        fi
    done
}

mkdir -p build
benchmarks | tee build/bench.txt
