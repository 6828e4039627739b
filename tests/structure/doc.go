// Package structure tests how the source tree is put together: which package may import
// which and why, that each package has a package comment, that documents name things that exist,
// that systemd units keep their promises, and that each required behaviour has a test and a mutant.
//
// It drives no program; it reads the files of the tree. The oracles are tables with a reason in each row, and a failure prints
// the reason.
package structure
