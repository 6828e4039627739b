#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-bullseye.sh [--build] ROOT: runs the library that was built here in a Debian 11 root (glibc
# 2.31). If ROOT does not exist, debootstrap makes it. The simulated driver and the test programs are
# built inside. The tests are those of cshim/cshimtest and of the resolver. With --build the script
# only makes the root, and builds a test program and the driver in ROOT/src/build, for tests/containers.
set -euo pipefail

: "${GO:=go}"
only_build=''
if [ "${1-}" = --build ]; then
    only_build=yes
    shift
fi
root=$(realpath -m "${1:?usage: test-bullseye.sh [--build] ROOT}")

if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
    echo "test-bullseye: needs root, and debootstrap" >&2
    exit 1
fi
if [ ! -e "$root/usr/bin/gcc" ]; then
    archive=$({ grep -hs "^URIs:" /etc/apt/sources.list.d/debian.sources || true
              grep -hs "^deb .*debian" /etc/apt/sources.list || true; } |
        grep -o 'https\?://[^ ]*' | grep -m 1 '/debian/\?$')
    debootstrap --variant=minbase --include=gcc,libc6-dev,make bullseye "$root" "$archive" >"$root.log" 2>&1 ||
        { tail -n 20 "$root.log"; exit 1; }
fi

# The sources, and the build that is tested.
rm -rf "$root/src"
mkdir -p "$root/src/build"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$root/src"
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root CC=gcc sh -ec "$1"; }
mkdir -p "$root/proc" "$root/dev"
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
trap 'umount "$root/proc"' EXIT

cat >"$root/src/build/inside.mk" <<EOF
include tests/simcuda/build.mk
include tests/programs/build.mk
EOF
if [ -n "$only_build" ]; then
    inside 'cd /src && make -s -f build/inside.mk CC=gcc BUILD=build build/sim/libcuda.so.1 build/programs/cudaprog-dlsym'
    exit
fi

for package in cshim/cshimtest cshim/entrypoints; do
    CGO_ENABLED=0 "$GO" test -c -o "$root/src/$package/tests" "./$package"
done
make --no-print-directory shim
cp build/libgpuarb.so "$root/src/build/"

# shellcheck disable=SC2016 # for the shell inside
inside 'ldd --version | head -n 1; cd /src
    make -s -f tests/simcuda/build.mk sim
    make -s -f cshim/build.mk CC=gcc build/cshim-test/peer build/cshim-test/codec
    make -s -f build/inside.mk CC=gcc BUILD=build $(for p in cudaprog-dlsym cudaprog-link cudaprog-gpa team permits lookups loader loader-own reenter/libcuda.so.1; do echo build/programs/$p; done)'
inside 'cd /src/cshim/cshimtest && ./tests'
inside 'cd /src/cshim/entrypoints && ./tests -test.run Resolver'
# Compare what the loader finds, line by line. A fault of this release's loader ends the first
# program before its last line.
# shellcheck disable=SC2016 # for the shell inside
inside 'cd /src && export LD_LIBRARY_PATH=build/sim
    for what in "loader semantics" "loader-own own"; do
        build/programs/$what >build/bare || echo "status $?" >>build/bare
        LD_PRELOAD=/src/build/libgpuarb.so build/programs/$what >build/shimmed || echo "status $?" >>build/shimmed
        sed -i "s/[^ ]*: undefined symbol/undefined symbol/" build/bare build/shimmed
        cmp build/bare build/shimmed && echo "$what: $(wc -l <build/bare) lines the same"
    done'
