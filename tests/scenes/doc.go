// Package scenes plays whole days of users: each is a script in testdata, on a machine of its own
// with the simulated driver, that ends with 0 where everything went as a user would expect.
//
// Where each scene lies:
//
//	a home server booted with systemd     tests/systemd, TestFullSystemdControl: a service is put under gpuarb
//	                                      and released again (make test-systemd)
//	a lab box with three users            lab.sh; with a daemon that dies or reloads, tests/arbitration
//	a CI runner, eight tests on one card  eight.sh; each runner of docs/admin/ci.md, tests/readme
//	a CI runner, 40 tests that use numba  suite.sh
//	a machine with two cards              twocards.sh
//	three model servers on one card       servers.sh
//	a notebook without root               notebook.sh; Jupyter and a JupyterHub, tests/notebooks
//	somebody who writes scripts           script.sh
//	users, groups, everybody              enable.sh
//	installed, and removed again          uninstall.sh; with systemd, tests/systemd, TestFullSystemdPages
//	twenty mistakes                       tests/e2e, mistakes_test.go
//	somebody who looks it up in the docs  tests/structure, TestLinks; each command of the how-to pages,
//	                                      tests/readme, tests/systemd, tests/containers, tests/notebooks
package scenes
