package e2e

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that the library changes nothing for programs that use no GPU: hundreds of Debian's programs have
// the same output, exit status and process state with it. The oracle is the program without the library.

// ordinary are Debian packages, essential or installed for the tests, whose
// programs only print something for --version or --help.
var ordinary = []string{
	"bash", "binutils", "bsdextrautils", "bsdutils", "bzip2", "coreutils",
	"cpp-12", "dash", "debianutils", "diffutils", "fdisk", "ffmpeg", "file", "findutils", "gcc-12", "git", "grep",
	"gzip", "hostname", "libc-bin", "libc-dev-bin", "make", "mawk", "ncurses-bin", "openssl",
	"patch", "perl", "perl-base", "procps", "python3.11", "sed", "strace", "tar", "util-linux", "xz-utils",
}

// unordinary are programs of these packages that use a terminal, other
// processes or the network even for --version or --help.
var unordinary = []string{
	"bashbug", "clear", "cpan", "dmesg", "ffplay", "kill", "libnetcfg", "more",
	"perlbug", "perlthanks", "pkill", "reset", "script", "scriptlive", "scriptreplay", "skill", "snice", "su",
	"top", "tput", "tset", "wall", "watch", "write", "write.ul", "x86_64",
}

// programs lists the ordinary programs of this machine, each file once.
func programs(t *testing.T) []string {
	t.Helper()
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Fatal("the list of programs comes from Debian's packages, and there is no dpkg")
	}
	out, _ := bounded.Command(t, bounded.Patience, "dpkg", append([]string{"--listfiles"}, ordinary...)...).Output() // some may be missing
	seen := map[string]bool{}
	var all []string
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		if dir := filepath.Dir(path); dir != "/bin" && dir != "/usr/bin" || slices.Contains(unordinary, filepath.Base(path)) {
			continue
		}
		real, err := filepath.EvalSymlinks(path)
		if err == nil && !seen[real] && preloads(real) {
			seen[real] = true
			all = append(all, path)
		}
	}
	return all
}

// preloads reports whether the loader honours LD_PRELOAD for a program. It does not for
// static programs and for setuid programs.
func preloads(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		return false
	}
	f, err := elf.Open(path)
	if err != nil {
		return info.Mode()&0o111 != 0 // a script of a shell or of another interpreter
	}
	defer f.Close()
	return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// ended is the result of a program that ran with empty input.
type ended struct {
	code           int
	stdout, stderr string
}

// briefly is enough time to print a version.
const briefly = 5 * time.Second

var errStuck = errors.New("did not end")

// runOrdinary runs a program in a folder of its own for at most limit.
func runOrdinary(limit time.Duration, dir string, preload []string, name string, args ...string) (ended, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + dir, "LC_ALL=C", "TERM=dumb", "PERL_HASH_SEED=0"}, preload...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil || cmd.ProcessState == nil || errors.Is(err, exec.ErrWaitDelay) {
		return ended{}, errors.Join(errStuck, err)
	}
	return ended{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}, nil
}

// compare runs a program twice without and once with the preload. It returns false if the two
// runs without the preload differ, because such a program cannot be compared.
func compare(t *testing.T, preload []string, program string) bool {
	t.Helper()
	dir := t.TempDir()
	option := "--version"
	first, err := runOrdinary(briefly, dir, nil, program, option)
	if err == nil && first.code != 0 {
		if help, err := runOrdinary(briefly, dir, nil, program, "--help"); err == nil && help.code == 0 {
			option, first = "--help", help
		}
	}
	if err != nil {
		return false
	}
	if second, err := runOrdinary(briefly, dir, nil, program, option); err != nil || second != first {
		return false
	}
	// A busy machine and chance (the order of a hash, a list of processes) can
	// change the output of one run. A real difference shows in every run.
	var got ended
	for range 10 {
		if got, err = runOrdinary(briefly, dir, preload, program, option); err == nil && got == first {
			return true
		}
		if again, err := runOrdinary(briefly, dir, nil, program, option); err != nil || again != first {
			return false
		}
	}
	t.Errorf("%s %s: %v, with the preload %+v, without %+v", program, option, err, got, first)
	return true
}

// copyFile copies a file, so that a build can replace the original meanwhile.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := bounded.WriteProgram(to, text); err != nil {
		t.Fatal(err)
	}
}

// preload returns the environment of programs that do not use a GPU. The test listens at
// the daemon's socket, and fails if such a program connects to it.
func preload(t *testing.T) []string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gpuarb-test-")
	if err != nil {
		t.Fatal(err)
	}
	shim, socket := filepath.Join(dir, "libgpuarb.so"), filepath.Join(dir, "gpuarb.sock")
	copyFile(t, rig.Build(t, "libgpuarb.so"), shim)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.SetDeadline(time.Now().Add(10 * time.Millisecond))
		if c, err := l.Accept(); err == nil {
			t.Error("a program that does not use a GPU connected to the daemon's socket")
			_ = c.Close()
		}
		_ = l.Close()
		_ = os.RemoveAll(dir)
	})
	return []string{"LD_PRELOAD=" + shim, "GPUARB_SOCKET=" + socket}
}

// TestPreloadIntoOrdinaryPrograms: a program that does not use a GPU has the same output and
// exit status with the preload as without.
func TestPreloadIntoOrdinaryPrograms(t *testing.T) {
	t.Parallel()
	env := preload(t)
	todo := make(chan string)
	var compared []string
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for program := range todo {
				if compare(t, env, program) {
					mu.Lock()
					compared = append(compared, program)
					mu.Unlock()
				}
			}
		})
	}
	all := programs(t)
	for _, program := range all {
		todo <- program
	}
	close(todo)
	bounded.Within(t, "all programs are compared", wg.Wait)
	t.Logf("%d of %d programs compared", len(compared), len(all))
	if len(compared) < 200 {
		t.Errorf("only %d programs of %d could be compared, want 200", len(compared), len(all))
	}
}

// TestPreloadIntoProgramsAtWork: programs that do real work have the same output and exit status with the preload as without. Some of
// them load libraries and look up functions themselves.
func TestPreloadIntoProgramsAtWork(t *testing.T) {
	t.Parallel()
	env := preload(t)
	for _, script := range []string{
		`ls -l /usr/bin | sort -k 9 | md5sum; cat nowhere; exit 3`,
		`find /usr/share/doc -maxdepth 1 -name '[a-d]*' | sort | xargs -n 7 echo | awk '{ n += NF } END { print n }'`,
		`tar -C /usr/share/perl5 --sort=name --mtime=@0 -cf - . | gzip -n | md5sum`,
		`printf 'caf\351\n' | iconv -f ISO-8859-15 -t UTF-8; getent passwd root; kill -TERM $$`,
		`perl -MPOSIX=floor -MList::Util=sum -MSocket -e 'print floor(sum(1.5, 2)), inet_aton("127.0.0.1") eq INADDR_LOOPBACK; exit 4'`,
		`/usr/bin/python3 -c 'import ctypes, hashlib, threading, zlib; print(ctypes.CDLL(None).strlen(b"abcd"))
assert not hasattr(ctypes.CDLL(None), "cuMemAlloc_v2")
t = threading.Thread(target=lambda: print(hashlib.sha256(b"x").hexdigest())); t.start(); t.join()'`,
		`git init -q . && git -c user.name=a -c user.email=b commit -q --allow-empty -m c --date @0 && git log --format=%s; rm -r .git`,
		`echo 'int main(void) { return 5; }' >a.c && gcc a.c -o a && ./a; echo $?; rm a`,
	} {
		t.Run(strings.Fields(script)[0], func(t *testing.T) {
			dir := t.TempDir()
			want, err := runOrdinary(rig.Patience, dir, nil, "/bin/sh", "-c", script)
			if err != nil {
				t.Fatal(err)
			}
			got, err := runOrdinary(rig.Patience, dir, env, "/bin/sh", "-c", script)
			if err != nil || got != want {
				t.Errorf("%v, with the preload %+v, without %+v", err, got, want)
			}
			if want.stdout == "" {
				t.Errorf("it prints nothing: %+v", want)
			}
		})
	}
}

// TestPreloadChangesNothingOfAProcess compares what a process inherits over exec and what the
// kernel shows of it: signals, mask, descriptors, threads, environment.
func TestPreloadChangesNothingOfAProcess(t *testing.T) {
	t.Parallel()
	const inherit = `umask 027; trap '' PIPE USR1; exec 7</dev/null
exec perl -MPOSIX -e 'sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGUSR2, SIGRTMIN)); exec @ARGV' "$@"`
	env := preload(t)
	dir := t.TempDir()
	for _, c := range []struct {
		program []string
		says    []string // proves that the command shows these lines; inherited settings may add to the masks
	}{
		{[]string{"grep", "-E", "^(Umask|Threads|Sig[PBIC]|Shd|NoNewPrivs|Seccomp|Cap)", "/proc/self/status"},
			[]string{"Umask:\t0027", "Threads:\t1", "SigBlk:\t", "SigIgn:\t"}},
		{[]string{"cat", "/proc/self/limits", "/proc/self/oom_score_adj", "/proc/self/timerslack_ns", "/proc/self/personality"},
			[]string{"Max open files"}},
		{[]string{"ls", "/proc/self/fd"}, []string{"7\n"}},
		{[]string{"env", "-u", "LD_PRELOAD", "-u", "GPUARB_SOCKET", "env"}, []string{"TERM=dumb"}},
	} {
		args := append([]string{"-c", inherit, "sh"}, c.program...)
		want, err := runOrdinary(rig.Patience, dir, nil, "/bin/sh", args...)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range c.says {
			if !strings.Contains(want.stdout, part) {
				t.Errorf("%v: %q is missing without the preload: %+v", c.program, part, want)
			}
		}
		got, err := runOrdinary(rig.Patience, dir, env, "/bin/sh", args...)
		if err != nil || got != want {
			t.Errorf("%v: %v, with the preload %+v\n\nwithout %+v", c.program, err, got, want)
		}
	}
}

// TestSessionChangesNoSignals: a program's first use of the GPU does not change its signals either.
func TestSessionChangesNoSignals(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	state := func(env []string) string {
		p := m.Interact(m.Command(env, "sh", "-c", `umask 027; trap '' PIPE USR1; exec "$1"`, "sh", cudaprog(t, "dlsym")))
		defer p.End()
		p.Want("alloc a 1M", "ok")
		p.Want("stream s", "ok")
		text, err := os.ReadFile(filepath.Join("/proc", p.Ask("pid")[len("ok "):], "status"))
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "Sig") && !strings.HasPrefix(line, "SigQ") || strings.HasPrefix(line, "Umask") {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "")
	}
	want, got := state(m.Env()), state(m.PreloadEnv())
	if got != want || !strings.Contains(want, "Umask:\t0027") {
		t.Errorf("with the preload\n%s\nwithout\n%s", got, want)
	}
}
