#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh BUILD OUT PACKAGE...: makes packages from what make built in the folder BUILD, and writes them to
# the folder OUT, as .deb and as .rpm. `make packages` calls it. The files of the package gpuarb are those that
# tools/install.sh installs. Those of gpuarb-slurm are made from slurm/, and those of gpuarb-kube from kube/.
# This script adds what a distribution asks of a package; the folder PACKAGE beside this script has the package's
# description for nfpm, and its scripts. SOURCE_DATE_EPOCH is the time of all files. VERSION is the version of
# the packages; if it is empty, they have the version that internal/version names.
set -euo pipefail

: "${SOURCE_DATE_EPOCH:?the time of the files: make packages sets it to the time of the commit}"
: "${GO:=go}" "${CC:=gcc}" "${VERSION:=}" "${SLURM_CFLAGS:=}"
export SOURCE_DATE_EPOCH
umask 022

build=$(realpath "${1:?usage: build.sh BUILD OUT PACKAGE...}")
out=$(realpath -m "${2:?usage: build.sh BUILD OUT PACKAGE...}")
shift 2
cd "$(dirname "$0")/../.."
readonly build out here=$PWD/tools/packages

# package_version: prints the version as both formats order it: 0.1.0-5-gabc, which git gives to the
# fifth commit after 0.1.0, comes after 0.1.0.
package_version() {
    local version=$VERSION
    if [ -z "$version" ]; then version=$(sed -n 's/^var Version = "\(.*\)"$/\1/p' internal/version/version.go); fi
    sed 's/-/+/; s/-/./g' <<<"$version"
}

# slurm_releases: prints the release of the Slurm headers that the compiler finds, for example 22.05, and the number after
# it, 22.06. All versions of release 22.05 sort between these two.
slurm_releases() {
    local number
    # shellcheck disable=SC2086 # the flags are words
    number=$(printf '#include <slurm/slurm_version.h>\nSLURM_VERSION_NUMBER\n' | "$CC" $SLURM_CFLAGS -E -P - | tail -n 1)
    printf '%d.%02d %d.%02d\n' $((number >> 16)) $((number >> 8 & 255)) $((number >> 16)) $(((number >> 8 & 255) + 1))
}

# files PACKAGE ROOT: puts the built files of a package below ROOT.
files() {
    local unit
    case $1 in
    gpuarb)
        DESTDIR=$2 PREFIX=/usr SYSCONFDIR=/etc tools/install.sh "$build"
        ;;
    gpuarb-slurm)
        install -D -m 0644 -t "$2/usr/lib/gpuarb-slurm" "$build/slurm/gpuarb.so"
        install -D -m 0755 -t "$2/usr/lib/gpuarb-slurm" slurm/prolog slurm/epilog
        install -D -m 0644 -t "$2/usr/share/doc/gpuarb-slurm" "$here/gpuarb-slurm/plugstack.conf.example" LICENSE
        ;;
    gpuarb-kube)
        install -D -m 0755 -t "$2/usr/bin" "$build"/kube/gpuarb-*
        for unit in kube/*.service; do
            install -D -m 0644 -t "$2/usr/lib/systemd/system" "$unit"
        done
        install -D -m 0644 -t "$2/usr/share/doc/gpuarb-kube" LICENSE
        ;;
    *)
        echo "build: there is no package $1" >&2
        return 1
        ;;
    esac
}

# programs: prints the programs and libraries below the working directory.
programs() {
    find usr -type f \( -path 'usr/bin/*' -o -name '*.so' -o -name gpuarb-probe \) | LC_ALL=C sort
}

# staged PACKAGE FORMAT: prints the folder with the files of a package for deb or rpm.
staged() { echo "$build/obj/packages/$1/$2"; }

# stage PACKAGE FORMAT: fills the folder that staged prints.
stage() {
    local root doc
    root=$(staged "$1" "$2")
    doc=$root/usr/share/doc/$1
    rm -rf "$root"
    files "$1" "$root"
    (cd "$root" && programs | xargs -d '\n' strip --strip-unneeded --remove-section=.comment)
    bill "$1" "$root"
    find "$root/usr/lib" -name '*.so' -exec chmod 0644 {} + # the loader maps them, and nothing executes them
    if [ -d "$root/usr/share/man" ]; then find "$root/usr/share/man" -type f -exec gzip -9n {} +; fi
    if [ -d "$here/$1/$2" ]; then cp -r "$here/$1/$2" "$root/scripts"; fi
    if [ "$2" = rpm ]; then
        zsh_elsewhere "$root/usr/share/zsh"
        return
    fi
    rm "$doc/LICENSE" # Debian has this text; the file copyright says where
    install -m 0644 "$here/$1/copyright" "$doc/copyright"
    if [ -e "$here/$1/lintian-overrides" ]; then install -D -m 0644 "$here/$1/lintian-overrides" "$root/usr/share/lintian/overrides/$1"; fi
    debian_changelog "$1" | gzip -9n >"$doc/changelog.gz"
}

# zsh_elsewhere FOLDER: moves zsh's completions from vendor-completions, which only Debian has, to site-functions, which
# zsh reads in other distributions.
zsh_elsewhere() {
    if [ ! -d "$1" ]; then return; fi
    mkdir "$1/site-functions"
    mv "$1"/vendor-completions/* "$1/site-functions/"
    rmdir "$1/vendor-completions"
}

# bill PACKAGE ROOT: writes the bill of materials of the programs in ROOT to the folder OUT, and the licences of
# their parts to ROOT.
bill() {
    local -a pairs
    local texts=$2/usr/share/doc/$1/THIRD-PARTY.txt
    mapfile -t pairs < <(cd "$2" && programs | sed "s,.*,&=$2/&,")
    "$GO" run ./tools/sbom -name "$1" -version "$PACKAGE_VERSION" -time "$SOURCE_DATE_EPOCH" -libc "$(getconf GNU_LIBC_VERSION | cut -d ' ' -f 2)" \
        -licences "$texts" "${pairs[@]}" >"$out/$1-$PACKAGE_VERSION.spdx.json"
    if [ -e "$texts" ]; then gzip -9n "$texts"; fi
}

# debian_changelog PACKAGE: prints a changelog in Debian's format, with one entry: the version and its time.
debian_changelog() {
    cat <<.
$1 ($PACKAGE_VERSION) unstable; urgency=medium

  * See CHANGELOG.md in /usr/share/doc/gpuarb.

 -- $PACKAGE_MAINTAINER  $(LC_ALL=C TZ=UTC date -R -d "@$SOURCE_DATE_EPOCH")
.
}

main() {
    local package format log=$build/obj/packages/log
    PACKAGE_VERSION=$(package_version)
    PACKAGE_ARCH=$("$GO" env GOARCH)
    PACKAGE_MAINTAINER="gpuarb's maintainers <maintainers@gpuarb.dev>"
    export PACKAGE_VERSION PACKAGE_ARCH PACKAGE_MAINTAINER
    rm -rf "$out"
    mkdir -p "$out"
    for package; do
        if [ "$package" = gpuarb-slurm ]; then
            read -r SLURM_RELEASE SLURM_NEXT < <(slurm_releases)
            export SLURM_RELEASE SLURM_NEXT
        fi
        for format in deb rpm; do
            stage "$package" "$format"
            # nfpm names files relative to the folder in which it runs.
            (cd "$(staged "$package" "$format")" &&
                "$build/tools/nfpm" package --config "$here/$package/nfpm.yaml" --packager "$format" --target "$out" >"$log" 2>&1) ||
                { cat "$log" >&2 && return 1; }
        done
    done
    ls "$out"
}

main "$@"
