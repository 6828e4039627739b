package contrib

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests run the scripts of docs/admin/notify.md as they stand there. A program in the place of sendmail keeps the mails, and a local server
// takes the messages of the chat.

// notifier starts the script of the page whose comment begins with a text, and returns the machine. PATH begins with the folder bin.
func notifier(t *testing.T, comment, bin string, environ ...string) *rig.Machine {
	t.Helper()
	page, err := os.ReadFile("../../docs/admin/notify.md")
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile("(?s)```sh\n(#!/bin/sh\n# " + comment + ".*?)```").FindSubmatch(page)
	if script == nil {
		t.Fatalf("the page has no script that %s", comment)
	}
	path := filepath.Join(t.TempDir(), "gpuarb-notify")
	if err := bounded.WriteProgram(path, script[1]); err != nil {
		t.Fatal(err)
	}
	m := rig.New(t, rig.Options{Devices: "100M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: "schema_version = 1\n[defaults]\nidle.warn = \"1s\"\n"})
	env := append(m.Env(), "GPUARB_SOCKET="+m.Socket, "PATH="+bin+":"+filepath.Dir(rig.Build(t, "gpuarb"))+":"+os.Getenv("PATH"))
	m.Begin(m.Command(append(env, environ...), path))
	return m
}

// idle starts a program that holds memory and does nothing.
func idle(m *rig.Machine, name string) {
	m.T.Helper()
	p := m.Interact(m.Gpuarb("run", "--name", name, "--", rig.Build(m.T, "programs/cudaprog-dlsym")))
	p.Want("alloc a 20M", "ok")
}

// TestMail: the user of an idle job gets a mail about it, also after a restart of the daemon.
func TestMail(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	mails := filepath.Join(bin, "mails")
	if err := bounded.WriteProgram(filepath.Join(bin, "sendmail"), fmt.Appendf(nil, "#!/bin/sh\n[ \"$1\" = -t ] && cat >>%s\n", mails)); err != nil {
		t.Fatal(err)
	}
	m := notifier(t, "Mails", bin)
	for number, name := range []string{"first", "second"} {
		idle(m, name)
		rig.Eventually(t, "there is a mail about the "+name, func() bool {
			text, _ := os.ReadFile(mails)
			mail := regexp.MustCompile(`To: (.*)\nSubject: GPU job \d+ is idle\n\n.*\b` + name + ` \(job \d+, cudaprog-dlsym\) has been idle for .* holds 20 MiB on GPU 0`).FindSubmatch(text)
			return mail != nil && string(mail[1]) == rig.User()
		})
		if number == 0 {
			m.Kill()
			m.Start()
		}
	}
}

// TestChat: an idle job is posted to the address in the environment, as an object with its text.
func TestChat(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	posts := make(chan string, 16)
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		posts <- r.Method + " " + r.Header.Get("Content-Type") + " " + string(body)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	m := notifier(t, "Posts", t.TempDir(), fmt.Sprintf("URL=http://%s/hook", listener.Addr()), "no_proxy=*")
	idle(m, "hoard")
	got := bounded.Receive(t, "a post", posts)
	if !strings.HasPrefix(got, `POST application/json {"text":"`) || !strings.Contains(got, "hoard (job 1, cudaprog-dlsym) has been idle for ") || !strings.HasSuffix(got, `"}`) {
		t.Errorf("posted: %s", got)
	}
}

// TestUnit: systemd accepts the unit of the page, if the script is where the unit says.
func TestUnit(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/admin/notify.md")
	if err != nil {
		t.Fatal(err)
	}
	unit := regexp.MustCompile("(?s)`(/etc/systemd/system/gpuarb-notify.service)`:\n\n```ini\n(.*?)```").FindSubmatch(page)
	if unit == nil {
		t.Fatal("the page has no unit")
	}
	const script = "/usr/local/lib/gpuarb-notify"
	if !strings.Contains(string(page), "`"+script+"`, with mode 0755") || strings.Count(string(unit[2]), "ExecStart="+script+"\n") != 1 {
		t.Errorf("the unit does not start the script:\n%s", unit[2])
	}
	path := filepath.Join(t.TempDir(), filepath.Base(string(unit[1])))
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(unit[2]), script, "/bin/true")), 0o644); err != nil {
		t.Fatal(err)
	}
	r := rig.Run(t, bounded.Command(t, rig.Patience, "systemd-analyze", "verify", "--man=no", path))
	if r.Code != 0 || strings.Contains(r.Stderr, "gpuarb-notify") {
		t.Errorf("%+v", r)
	}
}
