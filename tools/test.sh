#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh [PACKAGE...]: runs the C tests, the benchmarks and the Go tests. The C tests are the make
# targets in C_TESTS, one step each. Every benchmark runs once, as one step, so that it keeps
# working. The Go tests run under the race detector. The last line is "N passed, N failed, N
# skipped". The script fails if a test fails or is skipped. If packages are named, only their Go
# tests run. The Go modules in kube/ are tested, too.
set -euo pipefail

: "${GO:=go}" "${MAKE:=make}" "${C_TESTS:=}"
passed=0
failed=0

module=()
if [ "$#" -eq 0 ]; then
    module=(kube)
    for target in $C_TESTS; do
        echo "== $target"
        if "$MAKE" -j"$(nproc)" --no-print-directory "$target"; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "FAIL $target"
        fi
    done
    echo "== benchmarks, each once"
    mapfile -t benched < <(git -c safe.directory='*' ls-files -- '*_test.go' | xargs grep -l '^func Benchmark' | xargs dirname | sort -u | sed 's,^,./,')
    if "$GO" test -run '^$' -bench . -benchtime 1x "${benched[@]}" >build/bench-once.txt 2>&1 &&
        "$MAKE" -j"$(nproc)" --no-print-directory cshim-bench && tools/limit.sh 300 build/cshim-bench once >>build/bench-once.txt; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL benchmarks"
        cat build/bench-once.txt
    fi
    set -- ./...
fi

# Most tests wait for a program or for the next reading of a device, so a processor can run several
# of them.
echo "== go test $*"
{
    "$GO" test -race -count=1 -parallel 6 -timeout 15m -json "$@"
    for m in "${module[@]}"; do "$GO" -C "$m" test -race -count=1 -timeout 15m -json ./...; done
    if [ "${#module[@]}" -ne 0 ]; then "$GO" -C kube/deploy test -count=1 -timeout 15m -json ./...; fi
} | build/tools/testsum -passed "$passed" -failed "$failed"
