#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# fuzz.sh: run each Go fuzz target for FUZZTIME (10s). What one finds is written
# to the package's testdata/fuzz, to be committed: `make test` runs it from then on.
set -euo pipefail

: "${GO:=go}" "${FUZZTIME:=10s}"

"$GO" list -f '{{.Dir}}' ./... | while read -r dir; do
    cd "$dir"
    { grep -hos '^func Fuzz[A-Za-z0-9_]*' ./*_test.go || true; } | sed 's/^func //' |
        while read -r target; do
            echo "== $(basename "$dir") $target"
            "$GO" test -run '^$' -fuzz "^$target\$" -fuzztime "$FUZZTIME" . </dev/null
        done
done
