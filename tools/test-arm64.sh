#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-arm64.sh BUILD: builds the library for aarch64 with a cross compiler. It runs the library in
# an emulator (qemu-user) with the simulated driver and the test programs. Their scripted daemon
# runs on this machine without the emulator. This tests the assembly, the layouts and the loader's
# part on aarch64.
set -euo pipefail

: "${CROSS:=aarch64-linux-gnu}"
build=${1:?usage: test-arm64.sh BUILD}
sysroot=/usr/$CROSS
for tool in "$CROSS-gcc" qemu-aarch64; do
    command -v "$tool" >/dev/null || { echo "test-arm64: no $tool" >&2; exit 1; }
done

cross() { make -s -f "$1" CC="$CROSS-gcc" BUILD="$build" "${@:2}"; }
mkdir -p "$build"
printf 'include tests/simcuda/build.mk\ninclude tests/programs/build.mk\n' >"$build/cross.mk"
cross cshim/build.mk shim
cross "$build/cross.mk" sim "$build"/programs/{cudaprog-dlsym,cudaprog-link,cudaprog-gpa,lookups,loader,loader-own}
make -s -f cshim/build.mk BUILD=build build/cshim-test/peer

shim=$(realpath "$build/libgpuarb.so")
scratch=$(mktemp -d)
trap 'kill %% 2>/dev/null || true; rm -rf "$scratch"' EXIT

# emulate LIBRARIES PROGRAM...: runs a program without the library. shimmed runs it with the
# library.
emulate() { timeout 300 qemu-aarch64 -L "$sysroot" -E "LD_LIBRARY_PATH=$1" "${@:2}"; }
shimmed() {
    timeout 300 qemu-aarch64 -L "$sysroot" -E "LD_LIBRARY_PATH=$1" -E "LD_PRELOAD=$shim" -E "GPUARB_SOCKET=$scratch/s" \
        "${@:2}"
}
failed=0
check() { # WHAT GOT WANT
    if [ "$2" = "$3" ]; then
        echo "ok $1"
    else
        diff <(printf '%s\n' "$3") <(printf '%s\n' "$2") | head -n 20 || true
        echo "FAILED $1"
        failed=1
    fi
}

check machine "$("$CROSS-readelf" -h "$shim" | awk '/Machine/ { print $2 }')" AArch64
newest=$("$CROSS-objdump" -T "$shim" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
check "symbols no newer than glibc 2.31: $newest" "$(printf '%s\nGLIBC_2.31\n' "$newest" | sort -V | tail -n 1)" GLIBC_2.31

check lookups "$(shimmed "$build/sim" "$build/programs/lookups" | grep -v ' ok$')" ''
for what in "loader semantics" "loader-own own"; do
    # shellcheck disable=SC2086 # a program and its argument
    check "$what" "$(shimmed "$build/sim" "$build"/programs/$what | sed 's/[^ ]*: undefined symbol/undefined symbol/')" \
        "$(emulate "$build/sim" "$build"/programs/$what | sed 's/[^ ]*: undefined symbol/undefined symbol/')"
done

# Every name of the driver, at every version in which something changes.
"$CROSS-gcc" -std=c11 -D_GNU_SOURCE -o "$build/walk" cshim/test/walk.c -ldl
{
    echo "versions $(cut -f 3- tests/simcuda/data/resolve-555.tsv | grep -o '[0-9]*:' | tr -d : | sort -nu | tr '\n' ' ') 99999 -1"
    cat tests/simcuda/data/exports-555.txt
    cut -f 1 tests/simcuda/data/resolve-555.tsv | sort -u
} >"$scratch/questions"
hooked=$(sed -n 's/^GA_HOOK(\([A-Za-z0-9_]*\),.*/\1/p' cshim/cuda/hooks.def)
for how in dlsym dlvsym gpa; do
    want=$(emulate "$build/sim/stub" "$build/walk" "$how" "$scratch/questions" |
        awk 'NR == FNR { hooked["driver:" $1] = 1; next } $NF in hooked { sub(/driver:/, "shim:") } { print }' <(echo "$hooked") -)
    check "walk $how, $(wc -l <<<"$want") answers" "$(shimmed "$build/sim/stub" "$build/walk" "$how" "$scratch/questions")" "$want"
done

# The core's own tests, without a sanitizer.
# shellcheck disable=SC2016 # for make
read -ra core < <(make -s -f cshim/build.mk --eval 'core: ; @echo $(SHIM_CORE_SOURCES)' core)
for unit in 'table_test 60000' charge_test credit_test 'env_test accounting/testdata/sizes.tsv' 'stress 4 20000'; do
    "$CROSS-gcc" -iquote cshim -std=c11 -D_GNU_SOURCE -O2 -pthread -o "$build/unit" "cshim/test/${unit%% *}.c" "${core[@]}"
    # shellcheck disable=SC2086 # a program and its arguments
    check "$unit" "$(emulate "$build/sim" "$build/unit" ${unit#"${unit%% *}"} >"$scratch/unit" 2>&1; echo "status $?")" 'status 0'
done

# A session: the last byte is granted, and the next one refused. It uses the driver without memory
# of its own, because the emulator keeps a record of every page of address space that the other
# driver reserves.
mkfifo "$scratch/orders"
build/cshim-test/peer "$scratch/s" limit 1M >"$scratch/peer" <"$scratch/orders" &
exec 3>"$scratch/orders"
while ! grep -q listening "$scratch/peer"; do sleep 0.1; done
for how in dlsym link gpa; do
    check "session by $how" "$(shimmed "$build/sim/stub:$build/sim" "$build/programs/cudaprog-$how" \
        'alloc a 1M; alloc b 1; free a; alloc b 1M; alloc c 1; pid' | grep -v '^ready\|^pid' | cut -d ' ' -f 1-4)" \
        "$(printf '%s\n' 'alloc a ok' 'alloc b err 2' 'free a ok' 'alloc b ok' 'alloc c err 2')"
done
exit "$failed"
