package scenes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has no test. It prepares the machine on which the scripts in testdata play; the other files play one
// script each.

// play runs testdata/NAME.sh in a mount namespace of its own. The script finds gpuarb, gpuarbd, the library
// and cudaprog-dlsym in PATH, an empty /run, and $scene, a folder that every user may read.
// It starts its daemons itself, with the function daemon. sim are more SIMCUDA_* variables.
func play(t *testing.T, name, devices string, sim ...string) {
	t.Helper()
	playFor(t, bounded.Lifetime, name, devices, nil, sim...)
}

// playFor plays a script as play does, for at most the time life, with more variables for the script.
func playFor(t *testing.T, life time.Duration, name, devices string, variables []string, sim ...string) {
	t.Helper()
	m := rig.New(t, rig.Options{Devices: devices, Sim: sim, Stopped: true, NoMount: true, Life: life})
	bin := filepath.Join(m.Dir, "bin")
	for _, dir := range []string{filepath.Join(bin, "no-exports"), filepath.Join(m.Dir, "sim")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, built := range []string{"gpuarb", "gpuarbd", "libgpuarb.so", "no-exports/libgpuarb.so", "sim/libcuda.so.1", "sim/libnvidia-ml.so.1", "programs/cudaprog-dlsym"} {
		text, err := os.ReadFile(rig.Build(t, built))
		if err == nil {
			err = bounded.WriteProgram(filepath.Join(bin, strings.TrimPrefix(strings.TrimPrefix(built, "sim/"), "programs/")), text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	script, err := filepath.Abs(filepath.Join("testdata", name+".sh"))
	if err != nil {
		t.Fatal(err)
	}
	// Open the simulated driver's state to all users of the scene, as a device is open to all users.
	open := bounded.Command(t, bounded.Patience, "chmod", "-R", "a+rwX", m.Dir)
	if out, err := open.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	env := append(m.Env(), "PATH="+bin+":"+os.Getenv("PATH"), "LD_LIBRARY_PATH="+bin, "scene="+m.Dir)
	env = append(append(env, rig.NoProcessor...), variables...)
	cmd := bounded.Bare(m.Command(env, "unshare", "--mount", "bash", "-euo", "pipefail", "-c", stage, script))
	r := rig.RunFor(t, life, cmd)
	if r.Code != 0 {
		t.Errorf("%s.sh: exit status %d\n%s\n%s", name, r.Code, r.Stdout, r.Stderr)
	}
	t.Log(r.Stdout)
}

// stage is the prelude of every script: the functions that scripts may use.
const stage = `
	mount -t tmpfs none /run
	umask 022
	# daemon LOG COMMAND...: starts a daemon, which ends with the scene, and waits until it is ready.
	daemon() {
		local log=$1
		shift
		setpriv --pdeathsig KILL "$@" >"$log" 2>&1 &
		until grep -qs msg=ready "$log"; do
			kill -0 $! || { cat "$log"; exit 1; }
			sleep 0.02
		done
	}
	# own_folders: /etc (a copy), /home and /usr/local are the scene's own from here on.
	own_folders() {
		for folder in etc home usr/local; do
			mkdir -p "$scene/own/$folder"
		done
		cp -a /etc/. "$scene/own/etc" 2>/dev/null || true
		chown root:root "$scene/own/etc" "$scene/own/usr/local"
		chmod 755 "$scene/own/etc" "$scene/own/home" "$scene/own/usr/local"
		for folder in etc home usr/local; do
			mount --bind "$scene/own/$folder" "/$folder"
		done
	}
	# as UID COMMAND...: runs a command as another user.
	as() { setpriv --reuid="$1" --regid="$1" --clear-groups "${@:2}"; }
	# expect TEXT FILE: the file has to contain the text.
	expect() { grep -qF -- "$1" "$2" || { echo "no \"$1\" in:"; cat "$2"; exit 1; }; }
	# nowhere TEXT FILE: it must not.
	nowhere() { ! grep -F -- "$1" "$2" || { echo "and it should not be there"; exit 1; }; }
	. "$0"
`
