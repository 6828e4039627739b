// Command gpuarb is the command line of gpuarb. It starts programs with the library (run), takes
// devices (claim), and shows the state of the daemon (ps, jobs, why, queue, devices, events, top).
// It changes limits (limit), checks the machine and the configuration (doctor, config check), and
// computes reservations (plan).
//
// The main type is app. Each command is a method of it that returns an error; run in root.go turns
// that error into the exit code. A command runs in one goroutine, except where a comment names
// another one.
//
// gpuarb speaks to the daemon only over its socket, so nothing needs to be mounted. The binary is
// linked statically, so that it runs in any container and with any libc. It decides nothing: all
// limits and queues are the daemon's.
//
// The result of a command goes to stdout. Every message goes to stderr as a line that begins with
// "gpuarb: " and says what was wrong, where, and what to do.
//
// docs/reference/exit-codes.md has the exit codes. `gpuarb run` exits with the code of the program
// that it started. If signal n ended the program, or the wait before it, the code is 128 + n, as in
// a shell. The codes of gpuarb itself differ from usual codes of programs, as those of timeout(1)
// do.
//
// # Signals under run
//
// The program starts as if env(1) had started it. It gets the signal dispositions, the signal mask,
// the descriptors and the limits that gpuarb was started with (package spawn). If a signal was
// ignored at the start, gpuarb ignores it while it waits. When the program runs, gpuarb forwards
// the signal, because the program may have a handler of its own for it.
//
// The program stays in the process group of gpuarb. In a group of its own it could not read the
// terminal as part of a pipeline, and the shell could not stop and continue it. Signals of the
// terminal (Ctrl-C, Ctrl-\) go to the whole foreground group, so the program receives them
// directly. To forward them too would deliver them twice, which many programs take for "quit at
// once". So while its group is in the foreground of its terminal, gpuarb ignores INT and QUIT, as
// time(1) and system(3) do. Otherwise (started by a service, by cron, in the background) it
// forwards them.
//
// TERM, HUP, USR1, USR2, CONT, ALRM, real-time signals and others that other processes may send are
// always forwarded. If gpuarb is killed, the program gets TERM, as with timeout(1). Before INT,
// TERM or HUP is forwarded, and as long as the program has not started, the waiting requests of the
// job are cancelled. With --exec the program replaces gpuarb, and none of this happens after that.
package main
