// Package preload puts programs under the library of gpuarb that no user starts with gpuarb run: a
// service, the sessions of a user or a group, or all programs of the machine. cmd/gpuarb calls it
// for enable, disable and status.
//
// The main type is Machine. For a target it writes the system's own files: a drop-in of systemd,
// lines for PAM, or /etc/ld.so.preload. Each is a marked block, and its removal leaves the file as
// it was, to the byte. Enable writes all blocks of a target or none, and starts a program with the
// library before and after. A lock on the folder /etc keeps two commands from changing files at
// once.
//
// It sets no limits: the daemon does. It starts no programs for users; cmd/gpuarb has run.
package preload
