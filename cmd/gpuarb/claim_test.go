package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"golang.org/x/sys/unix"
)

// This file checks `gpuarb claim` from a shell: how long a claim lasts, how it is released, and
// which variables the shell gets. The fake daemon of main_test.go gives the device;
// tests/conformance/claims_test.go has claims of a real daemon.

// claimDaemon makes a daemon that gives each job the second device.
func claimDaemon(t *testing.T) *fakeDaemon {
	return startDaemon(t, func(d *fakeDaemon) { d.given = []ipc.JobDevice{cardB} })
}

// shell prepares a script with gpuarb in $G.
func (d *fakeDaemon) shell(t *testing.T, script string, env ...string) *exec.Cmd {
	t.Helper()
	command := gpuarb(t, d.environment(t, env...))
	shell := bounded.Command(t, bounded.Patience, "bash", "-c", script)
	shell.Env = append(command.Env, "G="+command.Path)
	return shell
}

// gone waits until a process has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(pidfd)
	if !waitForEnd(pidfd, deadline) {
		_ = unix.Kill(pid, unix.SIGKILL)
		t.Errorf("not within %v: the end of process %d", deadline, pid)
	}
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestClaimForShell checks that a shell has its claim until the shell ends. The end of a subshell
// does not end the claim.
func TestClaimForShell(t *testing.T) {
	daemon := claimDaemon(t)
	got := finish(t, daemon.shell(t, `
		eval "$("$G" claim | cat)" || exit
		(eval :)
		kill -0 $GPUARB_CLAIM || exit
		grep -c . /proc/$GPUARB_CLAIM/cmdline >/dev/null
		readlink /proc/$GPUARB_CLAIM/fd/0 /proc/$GPUARB_CLAIM/fd/1 /proc/$GPUARB_CLAIM/fd/2 /proc/$GPUARB_CLAIM/cwd
		echo "$CUDA_VISIBLE_DEVICES/$ROCR_VISIBLE_DEVICES/$ZE_AFFINITY_MASK/${HIP_VISIBLE_DEVICES-none}/$GPUARB_JOB/$LD_PRELOAD"
		echo $GPUARB_CLAIM`, "HIP_VISIBLE_DEVICES=3"))
	lines := strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
	if got.code != 0 || len(lines) != 6 {
		t.Fatalf("code %d\n%v", got.code, got)
	}
	want := []string{"/dev/null", "/dev/null", "/dev/null", "/",
		"GPU-11bb0000-0000-0000-0000-000000000000///none/" + testJobHex + "/" + testLibrary(t)}
	for i := range want {
		if lines[i] != want[i] {
			t.Errorf("line %d: %q, want %q", i+1, lines[i], want[i])
		}
	}
	gone(t, number(t, lines[5]))
	if job := daemon.lastJob(t); job.Flags != ipc.JobClaim|ipc.JobAny || job.Devices != 3 ||
		!strings.HasPrefix(job.Command.String(), "bash[") {
		t.Errorf("asked for %+v, %q", job, job.Command.String())
	}
	select {
	case <-daemon.closed:
		t.Error("the end of a shell took the device from what it left behind")
	default:
	}
}

// TestClaimRelease checks that a release ends the claim at once, and restores the variables.
func TestClaimRelease(t *testing.T) {
	daemon := claimDaemon(t)
	got := finish(t, daemon.shell(t, `
		eval "$("$G" claim)" && was=$GPUARB_CLAIM &&
		"$G" claim --only-if-none; echo "code $?"
		"$G" run -- sh -c 'echo "inside $GPUARB_JOB $CUDA_VISIBLE_DEVICES"'
		"$G" run --memory "1 gib" --streams 3 -- sh -c 'echo "at most $GPUARB_MEMORY, $GPUARB_STREAMS"'
		"$G" run --min 1G -- true; echo "code $?"
		eval "$("$G" claim --release)"
		echo "${GPUARB_CLAIM-none} ${GPUARB_JOB-none} $CUDA_VISIBLE_DEVICES ${ZE_AFFINITY_MASK-none} $HIP_VISIBLE_DEVICES ${LD_PRELOAD-none}"
		readlink /proc/$was/exe && echo "the keeper lives"
		exit 0`, "CUDA_VISIBLE_DEVICES=0,1", "HIP_VISIBLE_DEVICES=it's 3"))
	want := "code 75\ninside " + testJobHex + " GPU-11bb0000-0000-0000-0000-000000000000\nat most 1GiB, 3\ncode 125\nnone none 0,1 none it's 3 none\n"
	if got.code != 0 || got.stdout != want {
		t.Errorf("code %d\n%v\nwant:\n%s", got.code, got, want)
	}
	if job := await(t, "the end of the job", daemon.closed); job != testJob {
		t.Errorf("job %v was closed", job)
	}
	if !strings.Contains(got.stderr, "--min: this shell has claim") {
		t.Errorf("stderr: %s", got.stderr)
	}
}

// TestClaimWithoutEval checks that a shell that did not take the variables of its claim is refused
// a second claim, instead of waiting for itself. A release finds the claim; a second release does
// no harm.
func TestClaimWithoutEval(t *testing.T) {
	daemon := claimDaemon(t)
	got := finish(t, daemon.shell(t, `
		"$G" claim >/dev/null; echo "code $?"
		"$G" claim >/dev/null; echo "code $?"
		"$G" claim --only-if-none >/dev/null; echo "code $?"
		"$G" claim --release | grep -c -e "unset GPUARB_JOB" -e "unset GPUARB_CLAIM"; echo "code $?"
		"$G" claim --release; echo "code $?"
		GPUARB_CLAIM=1 GPUARB_JOB=00 LD_PRELOAD= "$G" claim --release | grep -c -e "unset GPUARB_JOB" -e "unset GPUARB_CLAIM"
		exit 0`))
	if want := "code 0\ncode 1\ncode 75\n2\ncode 0\nunset GPUARB_CLAIM\ncode 0\n2\n"; got.stdout != want {
		t.Errorf("%v\nwant:\n%s", got, want)
	}
	if strings.Count(got.stderr, "this shell holds") != 2 || strings.Count(got.stderr, "this shell has no claim") != 2 {
		t.Errorf("stderr: %s", got.stderr)
	}
}

// TestClaimForAnother checks that the claim lasts as long as the process that --for names.
func TestClaimForAnother(t *testing.T) {
	daemon := claimDaemon(t)
	sleep := bounded.Command(t, bounded.Lifetime, "sleep", "1000")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	got := finish(t, gpuarb(t, daemon.environment(t), "claim", "--json", "--for", strconv.Itoa(sleep.Process.Pid)))
	var c claimed
	if err := json.Unmarshal([]byte(got.stdout), &c); err != nil || got.code != 0 {
		t.Fatalf("%v, code %d\n%v", err, got.code, got)
	}
	if len(c.Devices) != 1 || c.Devices[0] != (claimedDevice{1, "nvidia", 1}) || c.Job != 7 || !isKeeper(c.Claim) ||
		c.Environment["GPUARB_JOB"] != testJobHex || c.Environment["GPUARB_CLAIM"] != fmt.Sprint(c.Claim) {
		t.Errorf("%+v", c)
	}
	_ = sleep.Process.Kill()
	_ = sleep.Wait()
	gone(t, c.Claim)
}

// TestClaimReleaseByNumber checks that another shell can release a claim by the number in
// GPUARB_CLAIM, which is the PID of its keeper, and that SIGTERM to the keeper releases the claim,
// too. The release then prints no lines for eval, because that shell did not have the claim's
// variables.
func TestClaimReleaseByNumber(t *testing.T) {
	daemon := claimDaemon(t)
	for _, sig := range []string{"", "kill"} {
		var c claimed
		got := finish(t, gpuarb(t, daemon.environment(t), "claim", "--json"))
		if err := json.Unmarshal([]byte(got.stdout), &c); err != nil {
			t.Fatalf("%v\n%v", err, got)
		}
		if sig == "" {
			got = finish(t, gpuarb(t, daemon.environment(t), "claim", "--release", strconv.Itoa(c.Claim)))
			if got.code != 0 || got.stdout+got.stderr != "" {
				t.Errorf("code %d\n%v", got.code, got)
			}
		} else if err := unix.Kill(c.Claim, unix.SIGTERM); err != nil {
			t.Error(err)
		}
		await(t, "the end of the job", daemon.closed)
		gone(t, c.Claim)
	}
	if got := finish(t, gpuarb(t, daemon.environment(t), "claim", "--release", strconv.Itoa(os.Getpid()))); got.code != 1 {
		t.Errorf("a process that keeps no claim: code %d\n%v", got.code, got)
	}
}

// TestClaimUntold checks that a claim is given up if its output cannot be written.
func TestClaimUntold(t *testing.T) {
	daemon := claimDaemon(t)
	finish(t, gpuarb(t, daemon.environment(t), "claim", "--for", strconv.Itoa(os.Getpid())))
	kept := daemon.keepers(t)
	if len(kept) != 1 {
		t.Fatalf("the test does not find keepers: %v", kept)
	}
	if _, err := endKeeper(kept[0]); err != nil {
		t.Error(err)
	}
	got := finish(t, daemon.shell(t, `"$G" claim >/dev/full; echo "code $?"`))
	if got.stdout != "code 1\n" {
		t.Errorf("%v", got)
	}
	for _, pid := range daemon.keepers(t) {
		t.Errorf("process %d keeps it", pid)
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// keepers returns the processes that keep claims of this daemon.
func (d *fakeDaemon) keepers(t *testing.T) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || !isKeeper(pid) {
			continue
		}
		if environ, err := procfacts.Here.Environ(pid); err == nil && strings.Contains(strings.Join(environ, " "), d.socket) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestKeeperHoldsNothing checks that the keeper keeps no pipes and no locks of the shell open.
func TestKeeperHoldsNothing(t *testing.T) {
	daemon := claimDaemon(t)
	got := finish(t, daemon.shell(t, `
		exec 7>"$LOCK"; flock 7
		out=$("$G" claim --index 2>&1) || exit
		echo "$out"
		exec 7>&-
		flock --nonblock "$LOCK" true && echo free`, "LOCK="+t.TempDir()+"/lock"))
	if got.code != 0 || got.stdout != "1\nfree\n" {
		t.Errorf("code %d\n%v", got.code, got)
	}
}

func TestQuote(t *testing.T) {
	for word, want := range map[string]string{
		"": "", "GPU-1,0:x": "GPU-1,0:x", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "a\nb": "'a\nb'",
	} {
		if got := quote(word); got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
}
