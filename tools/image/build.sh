#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh BUILD: makes the image localhost/gpuarb:VERSION for podman, from the packages in BUILD/packages and a
# Debian 12 that debootstrap makes. `make image` calls it. It needs root. Containerfile in this folder describes the
# image. PODMAN is the command of podman, which may have flags; SOURCE_DATE_EPOCH is the time of the image.
set -euo pipefail

: "${SOURCE_DATE_EPOCH:?the time of the image: make image sets it to the time of the commit}" "${PODMAN:=podman}"
build=$(realpath "${1:?usage: build.sh BUILD}")
cd "$(dirname "$0")/../.."
readonly root=$build/.image context=$build/image # Go ignores folders whose name begins with a dot

if [ "$(id -u)" -ne 0 ]; then
    echo "image: root must run this: debootstrap makes device nodes" >&2
    exit 1
fi
debs=("$build"/packages/gpuarb_*.deb "$build"/packages/gpuarb-kube_*.deb)
version=$(dpkg-deb --field "${debs[0]}" Version)

trap 'rm -rf --one-file-system "$root" "$context"' EXIT
# The scripts of the package gpuarb need the programs of these two parts of systemd.
tools/fresh-root.sh --make "$root" systemd-standalone-sysusers,systemd-standalone-tmpfiles
cp "${debs[@]}" "$root/tmp/"
chroot "$root" sh -c 'DEBIAN_FRONTEND=noninteractive dpkg --install /tmp/*.deb' >"$build/obj/image.log" 2>&1 ||
    { cat "$build/obj/image.log" >&2 && exit 1; }
# Keep the licences of all packages, /usr/share/doc/*/copyright, and the documents of gpuarb.
find "$root/usr/share/doc" -type f ! -name copyright ! -path "$root/usr/share/doc/gpuarb*" -delete
find "$root/usr/share/doc" -type d -empty -delete
rm -rf "$root"/tmp/* "$root"/usr/share/{man,info,locale,bash-completion,zsh,fish}/* "$root"/var/{lib/apt/lists,cache,log}/*

rm -rf "$context"
mkdir -p "$context"
tar --create --file "$context/root.tar" --directory "$root" --numeric-owner --sort=name --mtime="@$SOURCE_DATE_EPOCH" --one-file-system .
# shellcheck disable=SC2086 # the flags are words
$PODMAN build --quiet --network none --timestamp "$SOURCE_DATE_EPOCH" --tag "localhost/gpuarb:${version//+/-}" \
    --build-arg VERSION="$version" --build-arg REVISION="$(git rev-parse HEAD)" --file tools/image/Containerfile "$context" >/dev/null
echo "localhost/gpuarb:${version//+/-}"
