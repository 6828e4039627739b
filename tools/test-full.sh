#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-full.sh [PACKAGE...]: runs the tests that take long. First come the make targets in
# FULL_STEPS, one step each. Then come the Go tests TestFull…, in files with the build tag "full",
# package by package, under the race detector. The script prints the time of each step and each
# test, keeps the output of the steps in build/full/, and ends with the line "N passed, N failed, N
# skipped". If packages are named, only their Go tests run. RUN='TestFullKill' is a pattern for the
# names of tests.
set -euo pipefail

: "${GO:=go}" "${MAKE:=make}" "${FULL_STEPS:=}" "${RUN:=TestFull}"
passed=0
failed=0

# On a busy machine a test that ends at the usual time limit proves nothing.
export GPUARB_TEST_PATIENCE=${GPUARB_TEST_PATIENCE:-60s}
mkdir -p build/full

if [ "$#" -eq 0 ]; then
    for target in $FULL_STEPS; do
        echo "== $target"
        begin=$SECONDS
        if "$MAKE" --no-print-directory "$target" 2>&1 | tee "build/full/$target.log"; then
            passed=$((passed + 1))
            echo "ok   $target $((SECONDS - begin))s"
        else
            failed=$((failed + 1))
            echo "FAIL $target $((SECONDS - begin))s"
        fi
    done
    # The module in kube/ has a step of its own.
    mapfile -t packages < <(git ls-files --cached --others --exclude-standard -- '*_test.go' ':!kube' |
        xargs grep -l '^//go:build full$' | xargs -r dirname | sort -u | sed 's,^,./,')
    set -- "${packages[@]}"
fi

# Run the packages one after the other, so that a test of load does not slow down another one.
if [ "$#" -ne 0 ]; then
    echo "== go test -tags full -run '^($RUN)' $*"
    "$GO" test -tags full -run "^($RUN)" -p 1 -race -count=1 -timeout 4h -json "$@"
fi | build/tools/testsum -times -passed "$passed" -failed "$failed"
