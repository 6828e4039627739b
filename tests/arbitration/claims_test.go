package arbitration

import (
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that one shell can claim several devices with `gpuarb claim`, and is refused at once if only its own
// claims are in the way. storm_test.go has claims of many processes, and tests/conformance/claims_test.go has claims
// over the socket.

// TestShellDoesNotWaitForItself: a shell may claim one device after the
// other, and the claim after the last free device is refused at once, because only the shell itself holds devices.
func TestShellDoesNotWaitForItself(t *testing.T) {
	t.Parallel()
	const script = `
		one=$("$G" claim --index) two=$("$G" claim --json) && echo "$one and $(echo "$two" | grep -c GPUARB_JOB)"
		three=$("$G" claim --json); echo "code $? $three"
		four=$("$G" claim --index --device 1); echo "code $? $four"
		"$G" claim --release && "$G" claim --release; echo "code $?"
		five=$("$G" claim --index --device 1); echo "code $? $five"`
	m := machine(t, "8G,8G", "")
	r := rig.Run(t, m.Command(append(m.Env(), m.Gpuarb().Env...), "bash", "-c", "G="+rig.Build(t, "gpuarb")+"\n"+script))
	want := "0 and 1\ncode 1 \ncode 1 \nunset GPUARB_CLAIM\nunset GPUARB_CLAIM\ncode 0\ncode 0 1\n"
	var got strings.Builder
	for line := range strings.Lines(r.Stdout) {
		if strings.Contains(line, "GPUARB_CLAIM") || !strings.HasPrefix(line, "unset ") && !strings.HasPrefix(line, "export ") {
			got.WriteString(line)
		}
	}
	if got.String() != want || !strings.Contains(r.Stderr, "this shell holds GPU 0, GPU 1 already") {
		t.Errorf("prints\n%s\nwant\n%s\n%s", r.Stdout, want, r.Stderr)
	}
	idle(m)
}
