#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# fetch-nonfree.sh FOLDER LIBRARY PACKAGE...: fetches every release of the packages from non-free of
# Debian's archive, and unpacks the vendor's LIBRARY of each as FOLDER/RELEASE/SONAME. Nothing is
# installed; the packages come from this machine's own apt sources. Prints the folders with such a
# library, one per line, including folders that were made by hand. Fails if there is none.
set -euo pipefail

: "${SUITES:=bullseye bookworm trixie sid experimental}"
folder=$(realpath -m "${1:?usage: fetch-nonfree.sh FOLDER LIBRARY PACKAGE...}")
library=${2:?a library}
shift 2

# An apt of its own, with lists and sources in the folder.
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
        done < <(ours apt-cache madison "$@" 2>/dev/null | awk '{ print $1, $3 }' | sort -u)
    done
}

# unpack SUITE PACKAGE VERSION: unpacks the library into a folder with the name of the release.
unpack() {
    local release=${3%-*} temporary file
    release=${release#*:}
    release=${release%%~*}
    if compgen -G "$folder/$release/$library.so.*" >/dev/null; then
        return
    fi
    temporary=$(mktemp -d "$folder/apt/XXXXXX")
    (cd "$temporary" && ours apt-get download "$2=$3" >"$folder/apt/log" 2>&1) || return
    dpkg-deb -x "$temporary"/*.deb "$temporary/root" || return
    file=$(find "$temporary/root" -type f -name "$library.so.[0-9]*.*" | head -n 1)
    mkdir -p "$folder/$release"
    cp "$file" "$folder/$release/$(readelf -d "$file" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')"
    rm -rf "$temporary"
    echo "-- $release, from $1"
}

mkdir -p "$folder"
if command -v apt-get >/dev/null; then
    fetch "$@" >&2
fi
if ! compgen -G "$folder/*/$library.so.*" >/dev/null; then
    echo "no $library below $folder, and none could be fetched" >&2
    exit 1
fi
dirname "$folder"/*/"$library".so.* | sort -u
