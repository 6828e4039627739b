package structure

import (
	"regexp"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// TestGPUTestsNeedACompilerAlone: what `make test-gpu` builds before it looks at the
// GPU needs no more than what its set-up installs, and so nothing of Python's.
func TestGPUTestsNeedACompilerAlone(t *testing.T) {
	cmd := bounded.Command(t, bounded.Patience, "make", "--dry-run", "--always-make", "test-gpu")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for pattern, want := range map[string]bool{`(?i)python`: false, `cudaprog-gpa`: true, `libgpuarb\.so`: true} {
		if got := regexp.MustCompile(pattern).Match(out); got != want {
			t.Errorf("%s in what is built: %v, want %v", pattern, got, want)
		}
	}
}
