// Package doctor examines a machine for `gpuarb doctor`, and says what is wrong and what to do. It
// examines the drivers, the library, the socket, the mount, and programs that use a GPU without
// gpuarb.
//
// The main type is Doctor. It changes nothing on the machine. A check that may hang has a time
// limit and a goroutine or process of its own; otherwise one goroutine makes all checks. cmd/gpuarb
// connects to the daemon and prints the findings.
package doctor
