#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-libcuda.sh FOLDER: hold the shim's resolver against the vendor's own libcuda.so.1, every
# release that Debian's archive has in non-free and every one that lies below FOLDER already
# (FOLDER/NAME/libcuda.so.1). It loads without a device. Nothing is installed: packages are
# fetched and unpacked into FOLDER, from where this machine gets its Debian packages.
set -euo pipefail

: "${GO:=go}" "${SUITES:=bullseye bookworm trixie sid experimental}"
folder=$(realpath -m "${1:?usage: test-libcuda.sh FOLDER}")

# apt of our own: its lists and sources lie in the folder.
ours() {
    local root=$folder/apt
    local tool=$1
    shift
    "$tool" -q -o Dir::Etc::sourcelist="$root/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::Etc::preferencesparts=/dev/null -o Dir::State::lists="$root/lists" -o Dir::Cache="$root/cache" \
        -o APT::Sandbox::User=root -o APT::Get::List-Cleanup=false "$@"
}

# The archive that this machine uses.
archive() {
    { grep -hs '^URIs:' /etc/apt/sources.list.d/debian.sources || true
      grep -hs '^deb .*debian' /etc/apt/sources.list || true; } |
        grep -o 'https\?://[^ ]*' | grep -m 1 '/debian/\?$'
}

fetch() {
    local uri suite version name
    uri=$(archive)
    mkdir -p "$folder"/apt/{lists/partial,cache/archives/partial}
    for suite in $SUITES; do
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $suite non-free" >"$folder/apt/sources.list"
        if ! ours apt-get update >"$folder/apt/log" 2>&1 || grep -q '^[EW]:' "$folder/apt/log"; then
            echo "-- $suite is not to be had here: $(grep -m 1 '^[EW]:' "$folder/apt/log" || true)"
            continue
        fi
        while read -r name version; do
            unpack "$suite" "$name" "$version" || echo "-- $suite: $name $version is not to be had"
        done < <(ours apt-cache madison libcuda1 nvidia-tesla-470-libcuda1 2>/dev/null | awk -F '[ |]+' '{ print $2, $3 }' | sort -u)
    done
}

# unpack SUITE PACKAGE VERSION: the library, in a folder of the release's name.
unpack() {
    local release=${3%-*} temporary
    release=${release#*:}
    if [ -e "$folder/$release/libcuda.so.1" ]; then
        return
    fi
    temporary=$(mktemp -d "$folder/apt/XXXXXX")
    (cd "$temporary" && ours apt-get download "$2=$3" >"$folder/apt/log" 2>&1) || return
    dpkg-deb -x "$temporary"/*.deb "$temporary/root" || return
    mkdir -p "$folder/$release"
    cp -L "$(find "$temporary/root" -name 'libcuda.so.[0-9][0-9][0-9].*' | head -n 1)" "$folder/$release/libcuda.so.1"
    rm -rf "$temporary"
    echo "-- $release, from $1"
}

mkdir -p "$folder"
if command -v apt-get >/dev/null; then
    fetch
fi
found=()
for library in "$folder"/*/libcuda.so.1; do
    if [ -e "$library" ]; then
        found+=("$(dirname "$library")")
    fi
done
if [ "${#found[@]}" -eq 0 ]; then
    echo "no libcuda.so.1 below $folder, and none could be fetched" >&2
    exit 1
fi
LIBCUDA_FOLDERS=$(IFS=:; echo "${found[*]}") "$GO" test -count 1 -tags libcuda -v -run TestRealLibrary ./cshim/entrypoints
