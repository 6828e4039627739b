#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh: apply each mutant to a copy of the tree, one at a time, and check that its
# test fails. README.md beside this file has the form of a mutant. MUTANTS limits the run
# to some rows (B2,C3). The copy is kept between runs, so that make rebuilds only the files
# that a patch changes. Once the copy is made, nothing is read from the checkout, which may
# change during the run.
set -euo pipefail

: "${GO:=go}" "${MAKE:=make}" "${MUTANTS:=}"
cd "$(dirname "$0")/../.."
readonly work=$PWD/build/mutants
readonly tree=$work/tree
# The copy is inside the checkout, and git must not treat it as part of the checkout.
export GIT_CEILING_DIRECTORIES=$work

# head_of PATCH KEY: print the value of a line in the patch's head.
head_of() {
    sed -n -e '/^diff /q' -e "s/^$2: *//p" "$1" | head -n 1
}

# sync_tree: make the copy equal to the checkout, writing only files that differ.
sync_tree() {
    local file
    mkdir -p "$tree"
    git ls-files --cached --others --exclude-standard | sort -u >"$work/files"
    while read -r file; do
        restore "$file"
    done <"$work/files"
    (cd "$tree" && find . -path ./build -prune -o -type f -print) | sed 's,^\./,,' | sort |
        comm -13 "$work/files" - | while read -r file; do rm -f "$tree/$file"; done
}

# restore FILE: copy the file from the checkout again, with a new time stamp for make.
restore() {
    if [ ! -f "$1" ]; then
        rm -f "$tree/$1"
    elif ! cmp -s "$1" "$tree/$1"; then
        mkdir -p "$tree/$(dirname "$1")"
        cp --preserve=mode "$1" "$tree/$1"
    fi
}

# build PACKAGE: build the package's tests, and what a mutant changes of the programs that they run. Only tests below
# tests/ run any.
build() {
    if [[ $1 == ./tests/* ]]; then
        "$MAKE" --no-print-directory build VERSION=mutant || return
    fi
    "$GO" test -c -o "$work/test.bin" "$1"
}

# try PACKAGE TESTS: run tests of the binary that build made, in the folder of the package as go test does. TESTS is a pattern.
try() {
    (cd "$1" && GPUARB_TEST_PATIENCE=20s timeout -k 10 300 "$work/test.bin" -test.v -test.timeout 4m -test.run "^($2)\$")
}

# tests_of PACKAGE PATCH...: print the tests of a package that the mutants name, joined by |.
tests_of() {
    local package=$1 patch
    shift
    for patch; do
        read -r in _ name <<<"$(head_of "$patch" Test)"
        if [ "$in" = "$package" ]; then
            echo "$name"
        fi
    done | sort -u | paste -s -d '|'
}

# baseline PATCH...: check that every test passes without a mutant; else its failure proves nothing.
baseline() {
    local patch package tests name bad=0
    for package in $(for patch; do head_of "$patch" Test; done | awk '{ print $1 }' | sort -u); do
        tests=$(tests_of "$package" "$@")
        if ! {
            "$MAKE" --no-print-directory test-build VERSION=mutant && build "$package" && try "$package" "$tests"
        } >"$work/baseline.log" 2>&1; then
            tail -n 40 "$work/baseline.log"
            bad=1
        fi
        for name in ${tests//|/ }; do
            if ! grep -q -- "^--- PASS: $name " "$work/baseline.log"; then
                echo "mutants: $package $name does not pass without a mutant" >&2
                bad=1
            fi
        done
    done
    return $bad
}

# judge PATCH LOG: apply the patch, test, and undo the patch. print killed, SURVIVED, or the reason why the mutant could not be tested.
judge() {
    local patch=$1 log=$2 package name rc=0
    read -r package _ name <<<"$(head_of "$patch" Test)"
    if ! git apply "$patch" >"$log" 2>&1; then
        echo 'ERROR: does not apply'
        return
    fi
    if ! build "$package" >"$log" 2>&1; then
        echo 'ERROR: does not build'
    else
        try "$package" "$name" >"$log" 2>&1 || rc=$?
        if grep -q -- '^ *--- SKIP' "$log"; then
            echo 'ERROR: test skipped'
        elif ! grep -q -- "^=== RUN   $name\$" "$log"; then
            echo 'ERROR: test not run'
        elif [ "$rc" -eq 0 ]; then
            echo SURVIVED
        elif grep -q -- "^--- FAIL: $name " "$log"; then
            echo killed
        else
            echo 'killed (crash or timeout)'
        fi
    fi
    git apply -R "$patch"
}

main() {
    local patch row start verdict killed=0 survived=0 errors=0
    local -a patches=()
    sync_tree
    cd "$tree"
    for patch in tests/mutants/*.patch; do
        row=$(head_of "$patch" Row)
        if [ -e "$patch" ] && { [ -z "$MUTANTS" ] || [[ ,$MUTANTS, == *,"$row",* ]]; }; then
            patches+=("$patch")
        fi
    done
    if [ "${#patches[@]}" -eq 0 ]; then
        echo "mutants: there is none${MUTANTS:+ for $MUTANTS}" >&2
        return 1
    fi
    baseline "${patches[@]}"
    printf '%-5s %-40s %7s  %s\n' ROW MUTANT SECONDS RESULT
    for patch in "${patches[@]}"; do
        start=$SECONDS
        verdict=$(judge "$patch" "$work/$(basename "$patch" .patch).log")
        printf '%-5s %-40s %7d  %s\n' "$(head_of "$patch" Row)" "$(basename "$patch" .patch)" \
            $((SECONDS - start)) "$verdict"
        case $verdict in
        killed*) killed=$((killed + 1)) ;;
        SURVIVED) survived=$((survived + 1)) ;;
        *) errors=$((errors + 1)) ;;
        esac
    done
    echo "${#patches[@]} mutants: $killed killed, $survived survived, $errors errors (logs in build/mutants)"
    [ $((survived + errors)) -eq 0 ]
}

main
