package rows

import "testing"

// This file checks which command lines count as runs of one program.

// TestProgramOf checks which commands count as one program.
func TestProgramOf(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"":                                  "",
		"/opt/bin/train --epochs 3":         "train",
		"python3 train.py --epochs 3":       "python3 train.py",
		"/usr/bin/python3.12 -u ./train.py": "python3.12 train.py",
		"python3 -m vllm.server --port 8":   "python3 -m vllm.server",
		"python3 -c import":                 "python3 -c",
		"python3":                           "python3",
		"bash run.sh 1":                     "bash run.sh",
		"java -jar app.jar":                 "java -jar app.jar",
	} {
		if got := ProgramOf(command); got != want {
			t.Errorf("%q is %q, want %q", command, got, want)
		}
	}
}
