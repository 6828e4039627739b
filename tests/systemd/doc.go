// Package systemd boots a Debian 12 by systemd-nspawn, with gpuarb installed in it by
// `make install` and the simulated driver where the vendor's would be, and goes through the
// life of the service: restart, reload, SIGKILL, an upgrade, a stop with clients. A shell
// outside of the unit reads /gpu/leases all the while. `make test-systemd` runs it.
package systemd
