package procfacts

import (
	"os"
	"path/filepath"
	"testing"
)

// The name of the processor and the size of the memory are read from texts of the kernel, and are empty if the kernel
// does not give them. root_test.go tests facts about processes and mounts.

func TestMachine(t *testing.T) {
	for _, c := range []struct {
		name      string
		files     map[string]string
		processor string
		total     uint64
	}{
		{"a PC", map[string]string{
			"cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: A Processor @ 2.70GHz\n\nprocessor\t: 1\nmodel name\t: A Processor @ 2.70GHz\n",
			"meminfo": "MemTotal:       16307612 kB\nMemFree:         1000000 kB\n"}, "A Processor @ 2.70GHz", 16307612 << 10},
		{"no names", map[string]string{"cpuinfo": "processor\t: 0\nBogoMIPS\t: 50.00\n", "meminfo": "MemFree: 1 kB\n"}, "", 0},
		{"nothing", nil, "", 0},
	} {
		root := Root(t.TempDir())
		for name, text := range c.files {
			if err := os.WriteFile(filepath.Join(string(root), name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if name, total := root.Processor(), root.MemTotal(); name != c.processor || total != c.total {
			t.Errorf("%s: %q with %d bytes, want %q with %d", c.name, name, total, c.processor, c.total)
		}
	}
	if total := Here.MemTotal(); total == 0 {
		t.Error("this machine has no memory")
	}
}
