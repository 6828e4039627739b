package evict

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests check that the rules of docs/admin/model-servers.md make servers give their memory back and take it again. The servers are
// stand-ins that answer the calls of the real servers. The rules are read from the page. The tests replace the address, and match by the
// command instead of the unit.

// questions has the HTTP call by which a client asks a server of each kind for an answer.
var questions = map[string]struct{ path, body string }{
	"vllm":       {"/v1/completions", `{"prompt": "a"}`},
	"sglang":     {"/generate", `{"text": "a"}`},
	"ollama":     {"/api/generate", `{"model": "llama3.1", "prompt": "a"}`},
	"llama.cpp":  {"/v1/chat/completions", `{"model": "gemma-3-4b"}`},
	"llama-swap": {"/v1/chat/completions", `{"model": "a"}`},
	"comfyui":    {"/prompt", `{"prompt": {}}`},
}

// preset returns the page's rule for a kind of server, and the port in the rule's commands. It replaces the address in these commands.
func preset(t *testing.T, kind, address string) (rule, port string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/admin/model-servers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rule, found := strings.Cut(string(page), "```toml\n[[rule]]\nname = \""+kind+"\"\n")
	rule, _, ended := strings.Cut(rule, "```")
	at := regexp.MustCompile(`127\.0\.0\.1:(\d+)`)
	unit := regexp.MustCompile(`match\.unit = ".*"\n`)
	if !found || !ended || !at.MatchString(rule) || !unit.MatchString(rule) {
		t.Fatalf("the page has no rule for %s", kind)
	}
	port = at.FindStringSubmatch(rule)[1]
	rule = unit.ReplaceAllLiteralString(rule, "match.command = \"*model-server "+kind+" *\"\n")
	return "[[rule]]\n" + at.ReplaceAllString(rule, address+":$1"), port
}

// TestPresets: each kind of server on the page gives its memory back for a waiting program, and answers again after that program has
// freed its memory. A server with evict.resume returns as soon as there is room. The other servers load their model at the next
// question.
func TestPresets(t *testing.T) {
	n := 0
	for kind, question := range questions {
		n++
		address := fmt.Sprintf("127.%d.%d.%d", 1+os.Getpid()>>8&0x7f, os.Getpid()&0xff, n)
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			rule, port := preset(t, kind, address)
			m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: `schema_version = 1
[defaults]
on_full = "wait"
evict.after = "500ms"
evict.idle_after = "500ms"
evict.min_resident = "100ms"
` + rule})
			program, err := filepath.Abs("../programs/model-server")
			if err != nil {
				t.Fatal(err)
			}
			server := m.Begin(m.Gpuarb("run", "--name", "server", "--", "python3", program, kind, address+":"+port, "6G"))
			server.Expect("ready")
			answers := func() {
				t.Helper()
				ask(t, "http://"+address+":"+port+question.path, question.body)
				if used := m.SimNumber("used", "0"); used != 6*gib {
					t.Errorf("the driver has %d bytes in use", used)
				}
			}
			answers()
			other := cudaprog(m)
			other.Want("alloc a 4G", "ok")
			if used := m.SimNumber("used", "0"); used != 4*gib {
				t.Errorf("beside the suspended server the driver has %d bytes in use", used)
			}
			m.AwaitLog("gave its memory back")
			r := rig.Run(t, m.Gpuarb("resume", "server"))
			resumes := strings.Contains(rule, "evict.resume")
			if resumes != (r.Code == 0) || !resumes && !strings.Contains(r.Stderr, "takes its memory again when it is used") {
				t.Errorf("gpuarb resume: %d, %s", r.Code, r.Stderr)
			}
			other.Want("free a", "ok")
			if resumes {
				rig.Eventually(t, "the server has its memory again", func() bool { return m.SimNumber("used", "0") == 6*gib })
			}
			answers()
			if peak := m.SimNumber("peak", "0"); peak > 8*gib {
				t.Errorf("the driver saw %d bytes in use at once", peak)
			}
		})
	}
}

// ask sends a question to a server, and fails the test unless an answer comes.
func ask(t *testing.T, url, body string) {
	t.Helper()
	client := http.Client{Timeout: rig.Patience}
	r, err := client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if text, err := io.ReadAll(r.Body); err != nil || r.StatusCode != http.StatusOK || !strings.Contains(string(text), "hello") && !strings.Contains(string(text), "prompt_id") {
		t.Errorf("%s answers %s, %q, %v", url, r.Status, text, err)
	}
}
