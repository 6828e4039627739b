// Command gpuarb is the command line of gpuarb. It starts programs under the shim
// (run), takes devices (claim), shows what the daemon knows (ps, jobs, why, queue, devices), changes
// limits (limit), checks the machine and the configuration (doctor, config check), and
// computes (plan).
//
// It speaks to the daemon over its socket alone: nothing needs to be mounted. It has
// no cgo, so that the one binary runs in any container and on any libc.
//
// What a command found out goes to stdout, every message to stderr, as one line that
// begins with "gpuarb: " and says what was wrong, where, and what to do.
//
// # Exit codes
//
//	 0  done
//	 1  something is wrong (doctor), or failed that no other code names
//	 2  usage: an unknown command or flag, or a malformed value
//	69  no daemon answers, or there is no device
//	75  busy now, and it was not to wait, or its place in the queue was cancelled
//	78  mistakes in a configuration file
//
// `gpuarb run` exits with the code of the program that it started, or 128 + n when
// signal n ended the program (or the wait before it), as a shell does. Of its own it has
// only these, so that they can be told from the program's, as with timeout(1):
//
//	 75  it would have had to wait, and was not to, or its place in the queue was cancelled
//	124  it waited too long
//	125  gpuarb itself failed: usage, no daemon, no device, no shim, a refused budget
//	126  the program was found and cannot be executed
//	127  the program was not found
//
// `gpuarb claim` has the codes of both.
//
// # Signals under run
//
// The program stays in gpuarb's process group: a group of its own could not read the
// terminal as part of a pipeline, and the shell could not stop and continue it. So
// what a terminal sends to the foreground group (Ctrl-C, Ctrl-\) reaches the program
// by itself, and forwarding it would deliver it twice, which many programs take for
// "quit at once". gpuarb ignores INT and QUIT, as time(1) and system(3) do, while its
// group is in the foreground of its terminal, and forwards them otherwise (started by
// a service, by cron, in the background). TERM, HUP, USR1, USR2 and CONT are always
// forwarded; if gpuarb is killed, the program gets TERM, as with timeout(1). Before INT,
// TERM or HUP is forwarded, and while there is no program yet, the job's waiting requests
// are cancelled.
package main
