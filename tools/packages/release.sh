#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# release.sh PACKAGES OUT: puts the files of a release into the folder OUT: what build.sh wrote to the
# folder PACKAGES, the source of this commit, and the checksums of all. `make release` calls it.
set -euo pipefail

packages=$(realpath "${1:?usage: release.sh PACKAGES OUT}")
out=$(realpath -m "${2:?usage: release.sh PACKAGES OUT}")
cd "$(dirname "$0")/../.."

bills=("$packages"/gpuarb-[0-9]*.spdx.json)
name=$(basename "${bills[0]}" .spdx.json)
if [ -n "$(git status --porcelain)" ]; then
    echo "release: the checkout has changes that are not committed; the source of the release lacks them" >&2
fi
rm -rf "$out"
mkdir -p "$out"
cp "$packages"/* "$out/"
git archive --format=tar --prefix="$name/" HEAD | gzip -9n >"$out/$name.tar.gz"
cd "$out"
sha256sum -- * >SHA256SUMS
cat SHA256SUMS
