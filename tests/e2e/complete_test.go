package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds what Tab offers in bash, zsh and fish while a daemon runs. The shells are real, and their screens are
// read.

// TestCompletion: with the installed completion files, bash, zsh and fish offer the processes, jobs, tickets and devices of
// a running daemon, each with a description.
func TestCompletion(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, NoMount: true,
		Config: "schema_version = 1\n[[rule]]\nname = \"lab\"\nmemory.max = \"8G\"\n"})
	begin := func(name string) *rig.Program {
		return m.Interact(m.Gpuarb("run", "--name", name, "--wait", "--", cudaprog(t, "dlsym"), "-"))
	}
	holder := begin("train-a")
	holder.Want("alloc a 8G", "ok")
	hostile := begin("$(touch came)") // offered by its number alone, because a shell could run its name
	first, second := begin("eval-b"), begin("eval-c")
	for i, p := range []*rig.Program{first, second} {
		p.Tell("alloc b 4G")
		rig.Eventually(t, "a request waits", func() bool { return len(m.Snapshot().Queue) == i+1 })
	}
	state := m.Snapshot()

	user, program := rig.User(), cudaprog(t, "dlsym")
	pid := func(p *rig.Program, name string) [2]string {
		return [2]string{fmt.Sprint(p.PID()), user + ": " + name + ": " + program[:20]}
	}
	for _, row := range []struct {
		line  string
		wants [][2]string // a word, and the beginning of its description
	}{
		{"gpuarb limit ", [][2]string{pid(holder, "train-a"), {fmt.Sprint(hostile.PID()), user + ": $(touch came): "}}},
		{"gpuarb limit --device ", [][2]string{{"0", state.Devices[0].Name + ", 8 GiB"}}},
		{"gpuarb run --device ", [][2]string{{"0", state.Devices[0].Name}, {"any", "whichever is free"}, {"emptiest", "the one with the most free memory"}}},
		{"gpuarb limit --rule ", [][2]string{{"lab", ""}}},
		{fmt.Sprintf("gpuarb limit %d ", holder.PID()), [][2]string{{"memory.max=", "the most memory"}, {"streams.max=", "the most streams"}}},
		{"gpuarb why ", [][2]string{{"1", user + ": train-a: "}, {"eval-b", user + ": "}}},
		{"gpuarb queue cancel ", [][2]string{
			{fmt.Sprint(state.Queue[0].Ticket), user + ": eval-b: "}, {fmt.Sprint(state.Queue[1].Ticket), user + ": eval-c: "}}},
	} {
		for _, shell := range []string{"bash", "zsh", "fish"} {
			shown := completed(m, shell, row.line, row.wants)
			if regexp.MustCompile(`(?m)^\$\(touch came\)`).MatchString(shown) {
				t.Errorf("%s, %q: a name that a shell would run is offered:\n%s", shell, row.line, shown)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(m.Dir, "came")); err == nil {
		t.Error("a job's name was run by a shell that completes")
	}
	m.Kill()
	if shown := fish(m, "gpuarb limit "); shown != "" {
		t.Errorf("without a daemon there is offered\n%s", shown)
	}
	m.Start()
}

// completed returns what a shell shows for a line after Tab, once it shows all wanted completions.
func completed(m *rig.Machine, shell, line string, wants [][2]string) (shown string) {
	m.T.Helper()
	defer func() {
		if m.T.Failed() {
			m.T.Logf("%s, %q shows\n%s", shell, line, shown)
		}
	}()
	show := func() string { return fish(m, line) }
	if shell != "fish" {
		terminal := m.Terminal(150, 50, interactive(m, shell))
		terminal.Await("@@")
		terminal.Press(line, "Tab")
		show = terminal.Screen
	}
	pattern := ""
	for _, want := range wants {
		pattern = regexp.QuoteMeta(want[0]) + `[ \t]+(\(|-- )?` + regexp.QuoteMeta(want[1])
		if len(wants) == 1 && shell != "fish" { // a shell completes the line with the only match
			pattern = regexp.QuoteMeta(line + want[0])
		}
		offered := regexp.MustCompile(pattern)
		rig.Eventually(m.T, fmt.Sprintf("%s, %q: %q is offered", shell, line, want), func() bool {
			shown = show()
			return offered.MatchString(shown)
		})
	}
	return shown
}

// share returns the folder with the files that are installed for shells.
func share(m *rig.Machine) string {
	return filepath.Join(filepath.Dir(rig.Build(m.T, "gpuarb")), "share")
}

// interactive returns a script that starts a shell at its prompt, as after a login on a machine with gpuarb installed.
func interactive(m *rig.Machine, shell string) string {
	m.T.Helper()
	path := "PATH=" + filepath.Dir(share(m)) + ":$PATH\n"
	file, text, run := "bashrc", path+". /usr/share/bash-completion/bash_completion\n. "+share(m)+"/bash-completion/completions/gpuarb\n"+
		"bind \"set show-all-if-ambiguous on\"\nPS1=\"@@ \"\n", "exec bash --rcfile "+m.Dir+"/bashrc -i"
	if shell == "zsh" {
		file, text = ".zshrc", path+"fpath=("+share(m)+"/zsh/site-functions $fpath)\nautoload -U compinit\ncompinit -u -d "+m.Dir+"/zcompdump\nsetopt no_list_ambiguous\nPS1=\"@@ \"\n"
		run = "export ZDOTDIR=" + m.Dir + "; exec zsh -d -i"
	}
	if err := os.WriteFile(filepath.Join(m.Dir, file), []byte(text), 0o600); err != nil {
		m.T.Fatal(err)
	}
	return "cd " + m.Dir + "; " + run
}

// fish returns fish's completions for a line, each as word, tab and description.
func fish(m *rig.Machine, line string) string {
	m.T.Helper()
	env := append(m.Env(), "GPUARB_SOCKET="+m.Socket, "PATH="+filepath.Dir(share(m))+":"+os.Getenv("PATH"), "HOME="+m.Dir)
	r := rig.Run(m.T, m.Command(env, "fish", "--no-config", "-c",
		"source "+share(m)+"/fish/vendor_completions.d/gpuarb.fish; complete -C '"+line+"'"))
	if r.Code != 0 {
		m.T.Errorf("fish, %q: exit status %d\n%s%s", line, r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}
