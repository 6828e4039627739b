package rows

import (
	"strings"
	"testing"
)

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
		"python3 -W ignore -X dev t.py -c":  "python3 t.py",
		"python3 -c":                        "python3",
		"bash -e run.sh":                    "bash run.sh",
		"bash -o errexit -- run.sh -c x":    "bash run.sh",
		"torchrun --standalone --nproc-per-node 8 --nnodes=2 train.py --lr 1": "torchrun train.py",
		"torchrun --nproc_per_node 8 -m pkg.train 1":                          "torchrun -m pkg.train",
		"java -cp a:b Main x":           "java Main",
		"env -i A=b nohup python3 x.py": "python3 x.py",
		"env":                           "env",
		"python3":                       "python3",
		"bash run.sh 1":                 "bash run.sh",
		"java -jar app.jar":             "java -jar app.jar",
	} {
		if got := ProgramOf(command); got != want {
			t.Errorf("%q is %q, want %q", command, got, want)
		}
	}
	one, other := ProgramOf("python3 -c import a"), ProgramOf("python3 -uc import b")
	if !strings.HasPrefix(one, "python3 -c #") || !strings.HasPrefix(other, "python3 -uc #") || ProgramOf("bash -lc a b") == ProgramOf("bash -lc a c") || one != ProgramOf("/usr/bin/python3  -c  import  a") {
		t.Errorf("code in an argument: %q, %q", one, other)
	}
	long := "python3 " + strings.Repeat("folder/", 100) + "train.py"
	if ProgramOf(long+" --epochs 1") != ProgramOf(long[:500]) {
		t.Errorf("the program of a command that the daemon has cut is %q, that of the whole command %q", ProgramOf(long[:500]), ProgramOf(long))
	}
}
