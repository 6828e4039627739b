// Package preload puts programs that nobody starts through gpuarb under its library: a service, the
// sessions of a user or of a group, or every program of the machine. It writes the system's own
// files for that (a drop-in, lines for PAM, /etc/ld.so.preload), each a marked block that can be
// taken out again to the byte, and finds what is written there.
package preload
