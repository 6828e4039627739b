#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# install.sh BUILD | --remove: put what was built, the units and the documents
# under $DESTDIR$PREFIX, or take them away again. A configuration that is there
# already is never touched.
set -euo pipefail

: "${DESTDIR:=}" "${PREFIX:=/usr/local}" "${SYSCONFDIR:=/etc}"

readonly root=$DESTDIR$PREFIX
readonly doc=$root/share/doc/gpuarb
readonly units=(gpuarbd.service gpuarbd.socket)

# text FILE TARGET: install a unit or a configuration with this prefix in its paths.
text() {
    install -d "$(dirname "$2")"
    sed -e "s,=/usr/bin/,=$PREFIX/bin/,g" -e "s,/usr/share/doc/,$PREFIX/share/doc/,g" "$1" >"$2"
    chmod 0644 "$2"
}

install_all() {
    local build=$1 file
    for file in gpuarb gpuarbd libgpuarb.so; do
        if [ ! -e "$build/$file" ]; then
            echo "install: $build/$file is not there; run make first" >&2
            return 1
        fi
    done
    install -D -m 0755 -t "$root/bin" "$build/gpuarb" "$build/gpuarbd"
    # A new file, never a write into the old one: running programs have it mapped.
    install -D -m 0755 "$build/libgpuarb.so" "$root/lib/gpuarb/.libgpuarb.so.new"
    mv "$root/lib/gpuarb/.libgpuarb.so.new" "$root/lib/gpuarb/libgpuarb.so"
    for file in "${units[@]}"; do
        text "systemd/$file" "$root/lib/systemd/system/$file"
    done
    text systemd/user/gpuarbd.service "$root/lib/systemd/user/gpuarbd.service"
    install -D -m 0644 systemd/gpuarb.sysusers "$root/lib/sysusers.d/gpuarb.conf"
    install -D -m 0644 systemd/gpuarb.tmpfiles "$root/lib/tmpfiles.d/gpuarb.conf"
    install -D -m 0644 -t "$doc" docs/*.md LICENSE CHANGELOG.md
    text systemd/gpuarb.toml "$doc/gpuarb.toml"
    if [ ! -e "$DESTDIR$SYSCONFDIR/gpuarb/gpuarb.toml" ]; then
        text systemd/gpuarb.toml "$DESTDIR$SYSCONFDIR/gpuarb/gpuarb.toml"
    fi
    install -d "$DESTDIR$SYSCONFDIR/gpuarb/conf.d"
    if [ -z "$DESTDIR" ]; then
        echo "installed under $PREFIX. To start the daemon, as root:"
        echo "    systemd-sysusers && systemd-tmpfiles --create gpuarb.conf"
        echo "    systemctl daemon-reload && systemctl enable --now gpuarbd.socket gpuarbd.service"
    fi
}

remove_all() {
    local file
    rm -f "$root/bin/gpuarb" "$root/bin/gpuarbd"
    for file in "${units[@]}"; do
        rm -f "$root/lib/systemd/system/$file"
    done
    rm -f "$root/lib/systemd/user/gpuarbd.service" \
        "$root/lib/sysusers.d/gpuarb.conf" "$root/lib/tmpfiles.d/gpuarb.conf"
    rm -rf "$root/lib/gpuarb" "$doc"
}

case ${1:?usage: install.sh BUILD or --remove} in
--remove) remove_all ;;
*) install_all "$1" ;;
esac
