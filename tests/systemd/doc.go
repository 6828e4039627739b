// Package systemd boots a Debian 12 by systemd-nspawn, with gpuarb installed in it by
// `make install` and the simulated driver in the place of the vendor's driver. It drives the
// life of the service: restart, reload, SIGKILL, an upgrade, a stop with clients. Meanwhile a shell
// outside of the unit reads /gpu/leases in a loop. The oracle is the set of leases that the test's own
// programs hold: every read shows them, or a documented error. Notebooks, a hub and the history
// are played there, too. The packages are installed, upgraded under running programs and purged. `make test-systemd` runs all of it.
package systemd
