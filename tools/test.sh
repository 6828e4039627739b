#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh [PACKAGE...]: run the C tests (make targets named in C_TESTS, each one
# step) and the Go tests, under the race detector, and end in one line
# "N passed, N failed, N skipped". Fails on any failure and on any skip. With
# packages named, only their Go tests run.
set -euo pipefail

: "${GO:=go}" "${MAKE:=make}" "${C_TESTS:=}"
passed=0
failed=0

if [ "$#" -eq 0 ]; then
    for target in $C_TESTS; do
        echo "== $target"
        if "$MAKE" --no-print-directory "$target"; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "FAIL $target"
        fi
    done
    set -- ./...
fi

echo "== go test $*"
"$GO" test -race -count=1 -timeout 10m -json "$@" |
    build/tools/testsum -passed "$passed" -failed "$failed"
