#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh COMMIT OUT: builds gpuarbd, gpuarb and libgpuarb.so of an earlier commit, from the
# history of this clone, into the folder OUT.
set -euo pipefail

readonly commit=$1 out=$2
cd "$(dirname "$0")/../.."

die() {
    echo "tests/upgrade: $*" >&2
    exit 1
}

git() { command git -c safe.directory='*' "$@"; }

git rev-parse --git-dir >/dev/null 2>&1 ||
    die "this is no git clone: commit $commit, to which an upgrade is tested, has to be in its history"
if ! git cat-file -e "$commit^{commit}" 2>/dev/null; then
    die "commit $commit (of tests/upgrade/previous) is not in this clone's history:" \
        "it is shallow, or of another repository. Run \`git fetch --unshallow\` (or clone without --depth) and try again"
fi
rm -rf "$out"
mkdir -p "$out/src"
git archive "$commit" | tar -x -C "$out/src"
# Build by the rules of that commit, without the variables of a calling make.
env -u MAKEFLAGS -u MAKEOVERRIDES -u MAKELEVEL -u BUILD make -j"$(nproc)" -s -C "$out/src" VERSION=previous \
    build/gpuarbd build/gpuarb shim >"$out/log" 2>&1 || {
    tail -n 20 "$out/log" >&2
    die "commit $commit does not build"
}
mv "$out/src/build/"{gpuarbd,gpuarb,libgpuarb.so,no-exports} "$out/"
rm -rf "$out/src"
