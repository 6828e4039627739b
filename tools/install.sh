#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# install.sh BUILD | --remove: installs the build, the units and the documents under
# $DESTDIR$PREFIX, or removes them. An existing configuration never changes. Without DESTDIR the
# removal also stops what it removes.
set -euo pipefail

: "${DESTDIR:=}" "${PREFIX:=/usr/local}" "${SYSCONFDIR:=/etc}"

readonly root=$DESTDIR$PREFIX
readonly doc=$root/share/doc/gpuarb
readonly share=$root/share/gpuarb     # files for other programs: a Grafana dashboard, alert rules
readonly layers=$root/share/vulkan/implicit_layer.d # where Vulkan's loader looks for layers
# Debian's zsh reads vendor-completions for packages, and site-functions for administrators.
if [ "$PREFIX" = /usr ]; then zsh=$root/share/zsh/vendor-completions; else zsh=$root/share/zsh/site-functions; fi
readonly zsh
readonly units=(gpuarbd.service gpuarbd.socket)

# text FILE TARGET: installs a unit or a configuration with this prefix in its paths.
text() {
    install -d "$(dirname "$2")"
    sed -e "s,\([=-]\)/usr/bin/,\1$PREFIX/bin/,g" -e "s,/usr/share/doc/,$PREFIX/share/doc/,g" "$1" >"$2"
    chmod 0644 "$2"
}

install_all() {
    local build=$1 file
    for file in gpuarb gpuarbd libgpuarb.so no-exports/libgpuarb.so gpuarb-probe share/man; do
        if [ ! -e "$build/$file" ]; then
            echo "install: $build/$file is not there; run make first" >&2
            return 1
        fi
    done
    install -D -m 0755 -t "$root/bin" "$build/gpuarb" "$build/gpuarbd"
    # Make a new file instead of writing into the old one, because running programs have the old one
    # mapped.
    for file in libgpuarb.so no-exports/libgpuarb.so; do
        install -D -m 0755 "$build/$file" "$root/lib/gpuarb/$file.new"
        mv "$root/lib/gpuarb/$file.new" "$root/lib/gpuarb/$file"
    done
    install -D -m 0644 cshim/vulkan/gpuarb_layer.json "$root/lib/gpuarb/no-exports/vulkan/gpuarb_layer.json" # names the library by a relative path
    install_for_containers
    install -d "$layers"
    sed "s,\.\./libgpuarb\.so,$PREFIX/lib/gpuarb/libgpuarb.so," cshim/vulkan/gpuarb_layer.json >"$layers/gpuarb_layer.json"
    chmod 0644 "$layers/gpuarb_layer.json"
    install -D -m 0755 -t "$root/lib/gpuarb" "$build/gpuarb-probe" # gpuarb doctor tests the library with it
    for file in "${units[@]}"; do
        text "systemd/$file" "$root/lib/systemd/system/$file"
    done
    text systemd/user/gpuarbd.service "$root/lib/systemd/user/gpuarbd.service"
    install -D -m 0644 daemon/metrics/board/gpuarb.json "$share/grafana/gpuarb.json"
    install -D -m 0644 daemon/metrics/board/gpuarb.rules.yml "$share/prometheus/gpuarb.rules.yml"
    install -D -m 0644 systemd/gpuarb.sysusers "$root/lib/sysusers.d/gpuarb.conf"
    install -D -m 0644 systemd/gpuarb.tmpfiles "$root/lib/tmpfiles.d/gpuarb.conf"
    pages_and_completions "$build/share"
    rm -rf "$doc"/*.md "$doc/docs" "$doc/contrib" # an older version had pages at other places
    install -D -m 0644 -t "$doc" README.md LICENSE CHANGELOG.md
    for file in docs docs/admin docs/reference docs/development docs/decisions; do
        install -D -m 0644 -t "$doc/$file" "$file"/*.md
    done
    install -D -m 0644 -t "$doc/docs/reference" docs/reference/*.json
    install -D -m 0644 -t "$doc/contrib/pytest" contrib/pytest/README.md contrib/pytest/pytest_gpuarb.py
    text systemd/gpuarb.toml "$doc/gpuarb.toml"
    if [ ! -e "$DESTDIR$SYSCONFDIR/gpuarb/gpuarb.toml" ]; then
        text systemd/gpuarb.toml "$DESTDIR$SYSCONFDIR/gpuarb/gpuarb.toml"
    fi
    install -d "$DESTDIR$SYSCONFDIR/gpuarb/conf.d"
    if [ -z "$DESTDIR" ]; then
        if booted && systemctl --quiet is-active gpuarbd.service; then
            echo "installed under $PREFIX, over what runs. To start the new daemon, which takes running programs over, as root:"
            echo "    systemctl daemon-reload && systemctl restart gpuarbd.service"
            return
        fi
        echo "installed under $PREFIX. To start the daemon, as root:"
        echo "    systemd-sysusers && systemd-tmpfiles --create gpuarb.conf"
        echo "    systemctl daemon-reload && systemctl enable --now gpuarbd.socket gpuarbd.service"
    fi
}

# install_for_containers: installs the files that only containers see. They name paths in containers,
# which are the same on all machines. A container sees them in place of the folder "bound". The files are replaced by a rename, because running containers have the old ones mounted.
install_for_containers() {
    local own=$root/lib/gpuarb/container
    install -d "$own" "$root/lib/gpuarb/bound"
    replace "$root/lib/gpuarb/bound/README" <<<"In a container, ../container is mounted here."
    replace "$own/ld.so.preload" <<<"/usr/lib/gpuarb/libgpuarb.so"
    replace "$own/on-loss-closed" <<<"Without a daemon, programs in this container get no GPU memory."
    sed "s,\.\./libgpuarb\.so,/usr/lib/gpuarb/libgpuarb.so," cshim/vulkan/gpuarb_layer.json | replace "$own/gpuarb_layer.json"
}

# replace FILE: replaces a file by what is read from stdin.
replace() {
    cat >"$1.new"
    chmod 0644 "$1.new"
    mv "$1.new" "$1"
}

# pages_and_completions SHARE: installs the manual pages and completions, and removes those that
# this version no longer has.
pages_and_completions() {
    remove_pages_and_completions
    install -D -m 0644 -t "$root/share/man/man1" "$1"/man/man1/*
    install -D -m 0644 -t "$root/share/man/man5" "$1"/man/man5/*
    install -D -m 0644 -t "$root/share/man/man8" "$1"/man/man8/*
    install -D -m 0644 -t "$root/share/bash-completion/completions" "$1"/bash-completion/completions/*
    install -D -m 0644 -t "$zsh" "$1"/zsh/site-functions/*
    install -D -m 0644 -t "$root/share/fish/vendor_completions.d" "$1"/fish/vendor_completions.d/*
}

remove_pages_and_completions() {
    rm -f "$root"/share/man/man1/gpuarb.1 "$root"/share/man/man1/gpuarb-*.1 "$root"/share/man/man5/gpuarb{.toml,-files}.5 \
        "$root/share/man/man8/gpuarbd.8" \
        "$root"/share/bash-completion/completions/gpuarb{,d} "$zsh"/_gpuarb{,d} \
        "$root"/share/fish/vendor_completions.d/gpuarb{,d}.fish
}

# booted: succeeds if systemd runs this machine, and the installation is for this machine.
booted() { [ -z "$DESTDIR" ] && [ -d /run/systemd/system ]; }

# enabled: prints what `gpuarb enable` has put under gpuarb, one per line.
enabled() {
    if [ -z "$DESTDIR" ] && [ -s "$root/bin/gpuarb" ]; then
        "$root/bin/gpuarb" status 2>/dev/null | awk 'NR > 1 { print ($1 == "all" ? "--all" : "--" $1 " " $2) }'
    fi
}

remove_all() {
    local file left
    left=$(enabled)
    if [ -n "$left" ]; then
        echo "uninstall: programs are still put under gpuarb, and would miss the library. First, as root:" >&2
        while read -r file; do echo "    gpuarb disable $file"; done <<<"$left" >&2
        return 1
    fi
    if booted && [ "$(systemctl show --property=FragmentPath --value gpuarbd.service | xargs -r realpath)" = "$(realpath -m "$root/lib/systemd/system/gpuarbd.service")" ]; then
        systemctl --quiet disable --now gpuarbd.socket gpuarbd.service
    fi
    rm -f "$root/bin/gpuarb" "$root/bin/gpuarbd"
    for file in "${units[@]}"; do
        rm -f "$root/lib/systemd/system/$file"
    done
    rm -f "$root/lib/systemd/user/gpuarbd.service" \
        "$root/lib/sysusers.d/gpuarb.conf" "$root/lib/tmpfiles.d/gpuarb.conf" \
        "$layers/gpuarb_layer.json"
    remove_pages_and_completions
    rm -rf "$root/lib/gpuarb" "$share" "$doc"
    if booted; then
        systemctl daemon-reload
        rm -f /run/cdi/gpuarb.json # the service wrote it; it names programs that are gone
    fi
    if [ -z "$DESTDIR" ]; then tell_left; fi
}

# tell_left: prints which files stay on the machine on purpose, and how to remove them.
tell_left() {
    local path pid user
    for path in "$SYSCONFDIR/gpuarb" /run/gpuarb /var/lib/gpuarb; do # the last one has the history of jobs
        if [ -e "$path" ]; then echo "left: $path; to remove it: rm -r $path"; fi
    done
    if [ -d /gpu ]; then echo "left: /gpu; to remove it: rmdir /gpu"; fi
    if getent group gpuarb >/dev/null; then echo "left: the group gpuarb; to remove it: groupdel gpuarb"; fi
    for user in gpuarb-http gpuarb-history; do
        if getent passwd "$user" >/dev/null; then echo "left: the user $user; to remove it: userdel $user"; fi
    done
    for pid in $(pgrep -x gpuarbd 2>/dev/null || true); do
        echo "left: process $pid, a daemon that somebody started ($(ps -o user= -p "$pid")); to stop it: kill $pid"
    done
    if grep -lqs /libgpuarb.so /proc/[0-9]*/maps; then
        echo "left: programs that run with the library loaded; they keep it until they end"
    fi
}

case ${1:?usage: install.sh BUILD or --remove} in
--remove) remove_all ;;
*) install_all "$1" ;;
esac
