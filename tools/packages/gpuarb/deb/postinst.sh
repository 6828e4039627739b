#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# dpkg runs this after it has unpacked gpuarb. It makes the system users and the mount point, and
# starts the daemon. After an upgrade it restarts the daemon, which ends no program: the new daemon
# takes running programs over, and their requests wait meanwhile.
set -e

case $1 in
configure | abort-upgrade | abort-deconfigure | abort-remove) ;;
*) exit 0 ;;
esac

systemd-sysusers gpuarb.conf
systemd-tmpfiles --create gpuarb.conf || true # in some containers /gpu cannot be made

# Enable the units at the first installation only, as Debian's own packages do: afterwards the
# administrator decides.
for unit in gpuarbd.socket gpuarbd.service; do
    deb-systemd-helper unmask "$unit" >/dev/null || true
    if deb-systemd-helper --quiet was-enabled "$unit"; then
        deb-systemd-helper enable "$unit" >/dev/null || true
    else
        deb-systemd-helper update-state "$unit" >/dev/null || true
    fi
done

if [ -e /usr/local/lib/systemd/system/gpuarbd.service ]; then
    echo "gpuarb: another gpuarb in /usr/local hides this one. In its checkout, run as root: make uninstall" >&2
fi
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || true
    # An upgrade does not restart the socket, so that no program is refused.
    if [ -z "$2" ]; then
        deb-systemd-invoke start gpuarbd.socket gpuarbd.service >/dev/null || true
    else
        deb-systemd-invoke restart gpuarbd.service >/dev/null || true
    fi
fi
