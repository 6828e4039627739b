package gpu

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that the simulated driver answers like NVIDIA's driver, with and without the library. The expected
// answers were recorded from a real GPU; gpu_test.go compares them with the driver of this machine.

// answersFile has the answers of NVIDIA's driver: 580.159.04 on an H200.
const answersFile = "testdata/answers.txt"

// section has commands of cudaprog for one process, with the answer to each.
type section struct {
	name              string
	commands, answers []string
}

// sections reads answersFile. Each section has a line "== NAME", and below it lines "COMMAND → ANSWER".
func sections(t *testing.T) (all []*section) {
	t.Helper()
	text, err := os.ReadFile(answersFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if name, begins := strings.CutPrefix(line, "== "); begins {
			all = append(all, &section{name: name})
		} else if line != "" && line[0] != '#' {
			s := all[len(all)-1]
			command, answer, _ := strings.Cut(line, " →")
			s.commands, s.answers = append(s.commands, command), append(s.answers, strings.TrimSpace(answer))
		}
	}
	return all
}

// handle matches answers with a handle of exported memory, which differs in each run.
var handle = regexp.MustCompile(`^((?:exportfd|poolexport|ptrexport|ipcget) \w+ ok) \w+$`)

// answered runs the commands in a process and returns its answers. If the process dies, the remaining answers are "no answer".
func answered(t *testing.T, m *rig.Machine, env []string, s *section) []string {
	t.Helper()
	cmd := m.Command(env, rig.Build(t, "programs/cudaprog-dlsym"), "-")
	cmd.Stdin = strings.NewReader(strings.Join(s.commands, "\n") + "\n")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	ended := cmd.Run()
	lines := strings.Split(strings.TrimSpace(strings.TrimPrefix(out.String(), "ready\n")), "\n")
	answers := make([]string, len(s.commands))
	for i, command := range s.commands {
		switch {
		case command == "fork": // answered by join
		case len(lines) == 0 || lines[0] == "":
			answers[i] = "no answer"
		default:
			answers[i], lines = handle.ReplaceAllString(lines[0], "$1 HANDLE"), lines[1:]
		}
	}
	if ended != nil {
		t.Logf("%s: it ends with %v; %s", s.name, ended, &errs)
	}
	return answers
}

// hold compares answers with the expected ones. Where NVIDIA's driver crashed instead of answering, any answer is right.
func hold(t *testing.T, who string, s *section, got, want []string) {
	t.Helper()
	for i, command := range s.commands {
		if got[i] != want[i] && want[i] != "no answer" {
			t.Errorf("%s: %q: %q, want %q", who, command, got[i], want[i])
		}
	}
}

// TestAnswers: the simulated driver answers like NVIDIA's driver, under the library and without it.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, s := range sections(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{NoMount: true, Sim: []string{"SIMCUDA_POOL_GRANULE=32M", "SIMCUDA_POOL_REMAP=1"}})
			hold(t, "the simulated driver", s, answered(t, m, m.Env(), s), s.answers)
			hold(t, "under the library", s, answered(t, m, m.PreloadEnv(), s), s.answers)
		})
	}
}
