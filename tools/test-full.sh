#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-full.sh [PACKAGE...]: the tests that take long. First the make targets named in
# FULL_STEPS, each one step; then the Go tests called TestFull…, which lie in files with the
# build tag "full", package by package, under the race detector. Prints how long each step and
# each test took, keeps what the steps said in build/full/, and ends in one line "N passed,
# N failed, N skipped". With packages named, only their Go tests run; RUN='TestFullKill' is a
# pattern for their names.
set -euo pipefail

: "${GO:=go}" "${MAKE:=make}" "${FULL_STEPS:=}" "${RUN:=TestFull}"
passed=0
failed=0

# A test that is cut off at the usual bound proves nothing about a busy machine.
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
    mapfile -t packages < <(git ls-files --cached --others --exclude-standard -- '*_test.go' |
        xargs grep -l '^//go:build full$' | xargs -r dirname | sort -u | sed 's,^,./,')
    set -- "${packages[@]}"
fi

# The packages one after the other: a test of load is not to be another's load.
if [ "$#" -ne 0 ]; then
    echo "== go test -tags full -run '^($RUN)' $*"
    "$GO" test -tags full -run "^($RUN)" -p 1 -race -count=1 -timeout 4h -json "$@"
fi | build/tools/testsum -times -passed "$passed" -failed "$failed"
