#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# fuzz.sh [PROGRAM...]: runs each Go fuzz target and each of these libFuzzer programs for FUZZTIME
# (10s, 5m). Inputs that a Go target finds are written to the package's testdata/fuzz. Inputs that a
# program finds are written beside the program, and belong in cshim/test/fuzz/corpus. Once they are
# committed, `make test` runs them.
set -euo pipefail

: "${GO:=go}" "${FUZZTIME:=10s}"

seconds=${FUZZTIME%s}
case $seconds in *m) seconds=$((${seconds%m} * 60)) ;; esac
for program; do
    target=$(basename "$program" _fuzz)
    echo "== cshim $target"
    mkdir -p "$program.found"
    "$program" -max_total_time="$seconds" -max_len=2000 -artifact_prefix="$program-" -print_final_stats=1 \
        "$program.found" "cshim/test/fuzz/corpus/$target" </dev/null 2>"$program.log" || { tail -n 40 "$program.log"; exit 1; }
    grep -E '^(Done|stat::peak)' "$program.log"
done

"$GO" list -f '{{.Dir}}' ./... | while read -r dir; do
    cd "$dir"
    { grep -hos '^func Fuzz[A-Za-z0-9_]*' ./*_test.go || true; } | sed 's/^func //' |
        while read -r target; do
            echo "== $(basename "$dir") $target"
            "$GO" test -run '^$' -fuzz "^$target\$" -fuzztime "$FUZZTIME" . </dev/null
        done
done
