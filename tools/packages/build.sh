#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh BUILD OUT: makes the packages from what make built in the folder BUILD, and writes them to
# the folder OUT. `make packages` calls it. The package's files are those that tools/install.sh
# installs; this script adds what a distribution asks of a package. SOURCE_DATE_EPOCH is the time of
# all files, and VERSION the version; empty: that of internal/version.
set -euo pipefail

: "${SOURCE_DATE_EPOCH:?the time of the files: make packages sets it to the time of the commit}"
: "${GO:=go}" "${VERSION:=}"
export SOURCE_DATE_EPOCH
umask 022

build=$(realpath "${1:?usage: build.sh BUILD OUT}")
out=$(realpath -m "${2:?usage: build.sh BUILD OUT}")
cd "$(dirname "$0")/../.."
readonly build out here=tools/packages
readonly programs=(usr/bin/gpuarb usr/bin/gpuarbd usr/lib/gpuarb/{gpuarb-probe,libgpuarb.so,no-exports/libgpuarb.so})

# package_version: prints the version as both formats order it: 0.1.0-5-gabc, which git gives to the
# fifth commit after 0.1.0, comes after 0.1.0.
package_version() {
    local version=$VERSION
    if [ -z "$version" ]; then version=$(sed -n 's/^var Version = "\(.*\)"$/\1/p' internal/version/version.go); fi
    sed 's/-/+/; s/-/./g' <<<"$version"
}

# staged FORMAT: prints the folder with the files of the package gpuarb for deb or rpm.
staged() { echo "$build/obj/packages/$1"; }

# stage FORMAT: fills this folder.
stage() {
    local root file
    root=$(staged "$1")
    rm -rf "$root"
    DESTDIR=$root PREFIX=/usr SYSCONFDIR=/etc tools/install.sh "$build"
    for file in "${programs[@]}"; do
        strip --strip-unneeded --remove-section=.comment "$root/$file"
    done
    bill "$root"
    chmod 0644 "$root"/usr/lib/gpuarb/{,no-exports/}libgpuarb.so # the loader maps it, and nothing executes it
    find "$root/usr/share/man" -type f -exec gzip -9n {} +
    cp -r "$here/$1" "$root/scripts"
    if [ "$1" = rpm ]; then # only Debian has a folder of its own for packages
        mkdir "$root/usr/share/zsh/site-functions"
        mv "$root"/usr/share/zsh/vendor-completions/* "$root/usr/share/zsh/site-functions/"
        rmdir "$root/usr/share/zsh/vendor-completions"
        return
    fi
    rm "$root/usr/share/doc/gpuarb/LICENSE" # Debian has this text; the file copyright says where
    install -D -m 0644 $here/copyright "$root/usr/share/doc/gpuarb/copyright"
    install -D -m 0644 $here/gpuarb.lintian-overrides "$root/usr/share/lintian/overrides/gpuarb"
    debian_changelog | gzip -9n >"$root/usr/share/doc/gpuarb/changelog.gz"
}

# bill ROOT: writes the bill of materials of the programs in ROOT to the folder OUT, and the licences of
# their parts to ROOT.
bill() {
    local -a pairs=("${programs[@]/#/=$1/}")
    local i
    for i in "${!pairs[@]}"; do pairs[i]=${programs[i]}${pairs[i]}; done
    "$GO" run ./tools/sbom -version "$PACKAGE_VERSION" -time "$SOURCE_DATE_EPOCH" -libc "$(getconf GNU_LIBC_VERSION | cut -d ' ' -f 2)" \
        -licences "$1/usr/share/doc/gpuarb/THIRD-PARTY.txt" "${pairs[@]}" >"$out/gpuarb-$PACKAGE_VERSION.spdx.json"
    gzip -9n "$1/usr/share/doc/gpuarb/THIRD-PARTY.txt"
}

# debian_changelog: prints the changelog in Debian's format, which has the version and its time.
debian_changelog() {
    cat <<.
gpuarb ($PACKAGE_VERSION) unstable; urgency=medium

  * See CHANGELOG.md in this folder.

 -- $PACKAGE_MAINTAINER  $(LC_ALL=C TZ=UTC date -R -d "@$SOURCE_DATE_EPOCH")
.
}

main() {
    local format
    PACKAGE_VERSION=$(package_version)
    PACKAGE_ARCH=$("$GO" env GOARCH)
    PACKAGE_MAINTAINER="gpuarb's maintainers <maintainers@gpuarb.dev>"
    export PACKAGE_VERSION PACKAGE_ARCH PACKAGE_MAINTAINER
    rm -rf "$out"
    mkdir -p "$out"
    for format in deb rpm; do
        stage "$format"
        # nfpm names files relative to the folder in which it runs.
        (cd "$(staged "$format")" &&
            "$build/tools/nfpm" package \
                --config "$OLDPWD/$here/gpuarb.yaml" --packager "$format" --target "$out" >"$build/obj/packages/log" 2>&1) ||
            { cat "$build/obj/packages/log" >&2 && return 1; }
    done
    ls "$out"
}

main
