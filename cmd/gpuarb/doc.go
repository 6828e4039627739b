// Command gpuarb is the command line of gpuarb. It starts programs under the shim
// (run), takes devices (claim), shows what the daemon knows (ps, jobs, why, queue, devices), changes
// limits (limit), checks the machine and the configuration (doctor, config check), and
// computes (plan).
//
// It speaks to the daemon over its socket alone: nothing needs to be mounted. It is
// linked statically, so that the one binary runs in any container and on any libc.
//
// What a command found out goes to stdout, every message to stderr, as one line that
// begins with "gpuarb: " and says what was wrong, where, and what to do.
//
// docs/reference/exit-codes.md has the exit codes. `gpuarb run` exits with the code of the program that it
// started, or 128 + n when signal n ended the program (or the wait before it), as a shell does; its
// own codes can be told from the program's, as with timeout(1).
//
// # Signals under run
//
// The program is started as env(1) would start it: with the dispositions, the mask, the
// descriptors and the limits that gpuarb was started with (package spawn). A signal that was ignored
// at the start gpuarb ignores while it waits, and passes on when the program runs, since the program may
// have a handler of its own for it.
//
// The program stays in gpuarb's process group: a group of its own could not read the
// terminal as part of a pipeline, and the shell could not stop and continue it. So
// what a terminal sends to the foreground group (Ctrl-C, Ctrl-\) reaches the program
// by itself, and forwarding it would deliver it twice, which many programs take for
// "quit at once". gpuarb ignores INT and QUIT, as time(1) and system(3) do, while its
// group is in the foreground of its terminal, and forwards them otherwise (started by
// a service, by cron, in the background). TERM, HUP, USR1, USR2, CONT, ALRM, real-time signals and
// others that other processes may send are always forwarded; if gpuarb is killed, the program gets TERM, as with timeout(1). Before INT,
// TERM or HUP is forwarded, and while there is no program yet, the job's waiting requests
// are cancelled. With --exec gpuarb becomes the program, and none of this happens once it runs.
package main
