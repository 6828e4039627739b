#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# fresh-root.sh [--with PACKAGES] [--pid] COMMAND: runs a shell command in a new Debian 12 system,
# in ~/gpuarb, a clone of this commit. The system has nothing but apt, git, make and gcc
# (debootstrap's minbase). The machine's Go is mounted into it with its settings and caches, because
# Debian's Go is too old. The machine's apt sources, proxies and certificates are copied, and
# downloaded packages are kept for the next run.
#
#   --with "a b"   install these packages before the command runs, also from contrib and non-free
#   --pid          use a PID namespace of its own, as a container does
#
# fresh-root.sh --make FOLDER PACKAGES [MORE]: makes such a system with these packages (a,b) in addition, without
# the clone. apt installs MORE ("a b") in it, because debootstrap cannot configure all packages.
#
# The system is in build/.root. Everything is mounted in a mount namespace of its own, so that
# nothing stays mounted however the script ends. Without --pid, processes and network are the
# machine's, because the kernel's process events reach no other PID namespace. If such a system
# cannot be made, a line says why, and the command runs on the machine itself (with --with or --pid
# it fails).
set -euo pipefail

cd "$(dirname "$0")/.."
: "${GO:=go}"
readonly home=/root
readonly suite=bookworm
readonly root=$PWD/build/.root
readonly log=$PWD/build/root.log
readonly debs=${XDG_CACHE_HOME:-$HOME/.cache}/gpuarb/debs

readonly certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}

# sources FORMAT: prints the machine's apt entries for this release of Debian, in one format.
sources() {
    case $1 in
    list)
        cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
            grep -E "^deb .* $suite(-[a-z]+)? " || true
        ;;
    sources) # a stanza ends with an empty line
        for file in /etc/apt/sources.list.d/*.sources; do
            if [ -e "$file" ]; then cat "$file"; fi
            echo
        done | awk -v suite="$suite" 'BEGIN { RS = ""; ORS = "\n\n" }
            $0 ~ "(^|\n)Suites:([^\n]*[ \t])?" suite "(-[a-z]+)?([ \t\n]|$)"'
        ;;
    esac
}

# mirror: prints the archive from which the machine gets this release, or nothing if its sources do
# not say.
mirror() {
    {
        sources list | sed -nE "s/^deb (\[[^]]*\] )?([^ ]+) $suite .*/\2/p"
        sources sources | sed -n 's/^URIs: *\([^ ]*\).*/\1/p'
    } | sed -n 1p
}

# components: copies apt sources from stdin to stdout. If --with names packages, adds contrib and
# non-free to them, because these have the drivers and their tools.
components() {
    if [ -n "$with" ]; then
        sed -E '/\bnon-free\b/!s/^(deb .*|Components:.*) main\b/\1 main contrib non-free/'
    else
        cat
    fi
}

# cannot: prints why such a system cannot be made here; fails if it can be made.
cannot() {
    if [ "$(id -u)" -ne 0 ]; then
        echo "it takes root"
    elif ! tools/setup.sh root >"$log" 2>&1; then
        echo "debootstrap is not to be had: $(tail -n 1 "$log")"
    elif ! unshare --mount true 2>"$log"; then
        echo "no mount namespace: $(tail -n 1 "$log")"
    elif ! make_root 2>>"$log"; then
        echo "debootstrap failed: $(tail -n 1 "$log")"
    else
        return 1
    fi
}

# base FOLDER PACKAGES: makes the system with these packages in addition.
base() {
    local mirror proxy=''
    rm -rf --one-file-system "$1" && mkdir -p "$1" "$debs" || return
    mirror=$(mirror)
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    # In a namespace, because debootstrap mounts.
    http_proxy=${http_proxy:-$proxy} unshare --mount --propagation private \
        debootstrap --variant=minbase --cache-dir="$debs" --include="$2" \
        "$suite" "$1" ${mirror:+"$mirror"} >"$log" 2>&1
}

# copy_apt FOLDER: copies this machine's settings for apt into a system, and the packages of earlier runs.
copy_apt() {
    if [ -n "$(mirror)" ]; then
        : >"$1/etc/apt/sources.list"
        sources list | components >"$1/etc/apt/sources.list.d/machine.list"
        sources sources | components >"$1/etc/apt/sources.list.d/machine.sources"
    fi
    cp -r /etc/apt/keyrings /etc/apt/trusted.gpg.d /etc/apt/auth.conf.d "$1/etc/apt/" 2>/dev/null || true
    cp -n /usr/share/keyrings/* "$1/usr/share/keyrings/" 2>/dev/null || true
    cp -L /etc/resolv.conf /etc/hosts "$1/etc/" || return
    {
        apt-config dump | grep '^Acquire::' || true
        if [ -e "$certificates" ]; then
            mkdir -p "$1/etc/ssl" && cp -L "$certificates" "$1/etc/ssl/machine.crt"
            echo 'Acquire::https::CAInfo "/etc/ssl/machine.crt";'
        fi
    } >"$1/etc/apt/apt.conf.d/90machine"
    echo force-unsafe-io >"$1/etc/dpkg/dpkg.cfg.d/no-sync" # the system is temporary, so that it need not survive a crash
    cp --no-clobber --link "$debs"/*.deb "$1/var/cache/apt/archives/" 2>/dev/null || cp --no-clobber "$debs"/*.deb "$1/var/cache/apt/archives/"
}

# make_root: makes the system and the clone, and copies this machine's settings for apt.
make_root() {
    base "$root" git,make,gcc && copy_apt "$root" && git clone --quiet --no-local . "$root$home/gpuarb"
}

# add FOLDER PACKAGES: installs packages in a system that base made.
add() {
    copy_apt "$1" &&
        unshare --mount --propagation private env DEBIAN_FRONTEND=noninteractive \
            chroot "$1" sh -c "apt-get update -q && apt-get install -q -y --no-install-recommends $2" >>"$log" 2>&1 &&
        keep_debs "$1" && rm -f "$1"/var/cache/apt/archives/*.deb
}

# keep_debs FOLDER: keeps a system's packages for the next run, and removes packages that were not used for a month.
keep_debs() {
    local deb kept
    for deb in "$1"/var/cache/apt/archives/*.deb; do
        kept=$debs/${deb##*/}
        if [ -e "$kept" ]; then touch "$kept"; else cp "$deb" "$kept.new" && mv "$kept.new" "$kept"; fi
    done
    find "$debs" -type f -mtime +30 -delete
}

# settings: prints the environment inside, one variable per line. It has a new user's variables, and
# those needed to reach servers.
settings() {
    local name go_dir
    go_dir=$("$GO" env GOROOT)
    echo "HOME=$home"
    echo "PATH=$go_dir/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    for name in CI TERM GPUARB_TEST_PATIENCE {http,https,ftp,all,no}_proxy {HTTP,HTTPS,FTP,ALL,NO}_PROXY; do
        if [ -n "${!name-}" ]; then echo "$name=${!name}"; fi
    done
    for name in GOPROXY GOFLAGS GOPRIVATE GONOPROXY GOSUMDB GONOSUMDB GOINSECURE GOVCS GOTOOLCHAIN GOMODCACHE GOCACHE; do
        echo "$name=$("$GO" env "$name")"
    done
    if [ -e "$root/etc/ssl/machine.crt" ]; then echo "SSL_CERT_FILE=/etc/ssl/machine.crt"; fi
}

# inside COMMAND: runs in the namespaces: mounts, changes the folder and runs the command.
inside() {
    local dir
    local -a env
    mapfile -t env < <(settings)
    mount --bind "$root" "$root"
    for dir in /dev /sys; do
        mount --rbind "$dir" "$root$dir"
    done
    if [ -n "$pid" ]; then mount -t proc proc "$root/proc"; else mount --rbind /proc "$root/proc"; fi
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    for dir in GOROOT GOMODCACHE GOCACHE; do
        dir=$("$GO" env "$dir")
        mkdir -p "$dir" "$root$dir"
        mount --rbind "$dir" "$root$dir"
    done
    mount -o remount,bind,ro "$root$("$GO" env GOROOT)"
    cd "$root"
    mkdir .machine
    pivot_root . .machine
    umount -l /.machine
    rmdir /.machine
    cd "$home/gpuarb"
    # Packages are installed with the same mounts and the same environment.
    # shellcheck disable=SC2016 # for the shell inside
    exec env -i "${env[@]}" bash -euc '
        if [ -n "$1" ]; then
            { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $1; } >&2
        fi
        eval "$2"' bash "$with" "$1"
}

# end: ends all processes inside, and removes the files.
end() {
    local process
    if [ -n "$command" ]; then kill -KILL -- "-$command" 2>/dev/null || true; fi
    if [ -s "$root.ns" ]; then
        for process in /proc/[0-9]*; do
            if [ "$(readlink "$process/ns/mnt" 2>/dev/null)" = "$(cat "$root.ns")" ]; then
                kill -KILL "${process#/proc/}" 2>/dev/null || true
            fi
        done
        rm -f "$root.ns"
    fi
    keep_debs "$root" 2>/dev/null || true
    rm -rf --one-file-system "$root"
}

command='' # the process group inside
main() {
    local reason status
    mkdir -p build
    if reason=$(cannot); then
        rm -rf --one-file-system "$root"
        if [ -n "$pid$with" ]; then
            echo "fresh-root: no fresh Debian 12 here: $reason"
            return 1
        fi
        echo "fresh-root: no fresh Debian 12 here ($reason): runs in place: $1"
        exec bash -euc "$1"
    fi
    if [ -n "$(git status --porcelain)" ]; then echo "fresh-root: what is not committed is not in there"; fi
    trap end EXIT
    trap 'exit 130' INT TERM HUP
    echo "fresh-root: in a fresh Debian 12: $1"
    set -m # its own process group, with the terminal's signals unchanged
    unshare --mount --propagation private ${pid:+--pid --fork} "$0" --inside "$pid" "$with" "$1" &
    command=$!
    set +m
    status=0
    wait "$command" || status=$?
    return "$status"
}

pid='' with=''
while :; do
    case ${1:-} in
    --with) with=$2; shift 2 ;;
    --pid) pid=yes; shift ;;
    --inside)
        pid=$2 with=$3
        readlink /proc/self/ns/mnt >"$root.ns"
        inside "$4"
        ;;
    --make)
        mkdir -p build
        folder=$(realpath -m "$2")
        { base "$folder" "$3" && { [ -z "${4-}" ] || add "$folder" "$4"; }; } || { cat "$log" >&2; exit 1; }
        exit
        ;;
    *) break ;;
    esac
done
main "${1:?usage: fresh-root.sh [--with PACKAGES] [--pid] COMMAND}"
