package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/spf13/cobra"

	"github.com/gpuarb/gpuarb/cmd/gpuarb/doctor"
	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks --json: the output of each command follows docs/reference/json.schema.json, and
// that schema and docs/reference/json.md have exactly the keys of the types that are printed.

var update = flag.Bool("update", false, "write docs/reference/json.schema.json anew")

// printed has the type that each command prints with --json.
var printed = map[string]reflect.Type{
	"ps": reflect.TypeFor[[]report.Lease](), "jobs": reflect.TypeFor[[]report.Holder](), "queue": reflect.TypeFor[[]report.Ticket](),
	"devices": reflect.TypeFor[[]report.Device](), "claim": reflect.TypeFor[claimed](), "status": reflect.TypeFor[[]statusRow](),
	"doctor": reflect.TypeFor[[]doctor.Finding](), "config check": reflect.TypeFor[checkResult](), "config diff": reflect.TypeFor[[]difference](), "plan": reflect.TypeFor[nowPlan](),
	"plan --min": reflect.TypeFor[reservationPlan](), "plan --streams": reflect.TypeFor[plan](),
	"why": reflect.TypeFor[[]report.Why](), "version": reflect.TypeFor[versions](), "limit": reflect.TypeFor[[]report.Limit](),
	"limit --dry-run": reflect.TypeFor[[]limitCheck](),
	"report":          reflect.TypeFor[[]report.Total](), "history": reflect.TypeFor[[]report.EndedJob](), "suggest": reflect.TypeFor[need](), "job list": reflect.TypeFor[[]report.Binding](),
}

// withoutJSON lists the commands that print no data, with the reason of each.
var withoutJSON = map[string]string{
	"run": "the output is the program's", "queue cancel": "it prints nothing", "enable": "it prints what it does, for people; status has the data",
	"disable": "as enable", "completion": "a shell's script", "help": "for people", "top": "a screen; ps, jobs and devices have its data",
	"suspend": "it prints nothing", "resume": "it prints nothing", "metrics": "Prometheus' format", "job open": "it prints one number", "job close": "it prints a sentence",
	"cdi generate": "it prints JSON in the format of CDI",
}

// key is a row of a table in docs/reference/json.md.
type key struct{ name, kind, meaning string }

// documented reads the keys of each command from docs/reference/json.md, in their order.
func documented(t *testing.T) map[string][]key {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/json.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("^\\| `([^`]+)` \\| ([a-z ]+) \\| (.+) \\|$")
	all, command := map[string][]key{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "## gpuarb "); ok {
			command = name
		} else if m := row.FindStringSubmatch(line); m != nil {
			all[command] = append(all[command], key{m[1], m[2], m[3]})
		}
	}
	return all
}

// kindOf returns the name of a type in docs/reference/json.md.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem()) + " or null"
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Slice:
		return "array of " + kindOf(t.Elem())
	case reflect.Map:
		return "object of " + kindOf(t.Elem())
	case reflect.Struct:
		return "object"
	case reflect.Float64:
		return "number"
	}
	return "integer"
}

// fieldsOf returns the fields of a type that are printed, also those of embedded types.
func fieldsOf(t reflect.Type) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return f.Anonymous || !f.IsExported() })
}

// keysOf returns the keys of a type in their order. The keys of an inner type follow their parent.
func keysOf(t reflect.Type, prefix string) (keys []key) {
	for t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	for _, f := range fieldsOf(t) {
		name := prefix + f.Tag.Get("json")
		keys = append(keys, key{name: name, kind: kindOf(f.Type)})
		if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct {
			keys = append(keys, keysOf(f.Type, name+"[].")...)
		}
		if f.Type.Kind() == reflect.Struct {
			keys = append(keys, keysOf(f.Type, name+".")...)
		}
	}
	return keys
}

// TestJSONIsDocumented checks that docs/reference/json.md has the keys of each command with --json,
// and that the keys follow the convention.
func TestJSONIsDocumented(t *testing.T) {
	docs := documented(t)
	for name, of := range printed {
		got := docs[name]
		for i := range got {
			got[i].meaning = ""
		}
		want := keysOf(of, "")
		for _, k := range want {
			if !slices.Contains(got, k) {
				t.Errorf("docs/reference/json.md, gpuarb %s: no line for `%s` (%s)", name, k.name, k.kind)
			}
			if strings.ContainsAny(k.name, ",-") || regexp.MustCompile(`_(s|sec|seconds|ns|mib)$`).MatchString(k.name) {
				t.Errorf("gpuarb %s: the key %s is against the convention", name, k.name)
			}
		}
		for _, k := range got {
			if !slices.Contains(want, k) {
				t.Errorf("docs/reference/json.md, gpuarb %s: `%s` (%s) is not printed", name, k.name, k.kind)
			}
		}
	}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		name := strings.TrimPrefix(c.CommandPath(), "gpuarb ")
		if _, known := printed[name]; !known && c.Flags().Lookup("json") != nil && name != "events" { // docs/reference/events.md has its keys
			t.Errorf("gpuarb %s has --json, and no keys in this test and docs/reference/json.md", name)
		}
		if c.IsAvailableCommand() && !c.HasSubCommands() && c.Flags().Lookup("json") == nil && withoutJSON[strings.Fields(name)[0]] == "" && withoutJSON[name] == "" {
			t.Errorf("gpuarb %s has no --json, and this test has no reason for that", name)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(new(app).rootCommand())
}

// schemaOf returns the JSON Schema of a type, with the meanings of its keys.
func schemaOf(t reflect.Type, path string, meaning map[string]string) map[string]any {
	switch t.Kind() {
	case reflect.Pointer:
		s := schemaOf(t.Elem(), path, meaning)
		s["type"] = []string{s["type"].(string), "null"}
		return s
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		if path != "" {
			path += "[]."
		}
		return map[string]any{"type": "array", "items": schemaOf(t.Elem(), path, meaning)}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem(), path, meaning)}
	case reflect.Struct:
		properties, required := map[string]any{}, []string{}
		for _, f := range fieldsOf(t) {
			name := f.Tag.Get("json")
			below := path + name
			if f.Type.Kind() == reflect.Struct {
				below += "."
			}
			s := schemaOf(f.Type, below, meaning)
			s["description"] = meaning[path+name]
			properties[name] = s
			required = append(required, name)
		}
		return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	}
	return map[string]any{"type": "integer"}
}

// TestSchema checks that docs/reference/json.schema.json describes the output of the commands.
func TestSchema(t *testing.T) {
	definitions := map[string]any{}
	docs := documented(t)
	for name, of := range printed {
		meaning := map[string]string{}
		for _, k := range docs[name] {
			meaning[k.name] = k.meaning
		}
		definitions["gpuarb "+name] = schemaOf(of, "", meaning)
	}
	want, err := json.MarshalIndent(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "What gpuarb prints with --json", "$defs": definitions,
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := "../../docs/reference/json.schema.json"
	if *update {
		if err := os.WriteFile(path, append(want, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(got)) != string(want) {
		t.Errorf("%s is not what the commands print (%v); go test ./cmd/gpuarb -run TestSchema -update writes it anew", path, err)
	}
}

// TestOutputsFollowTheSchema compares the output of the commands with the schema file that users
// have: once with a full state, and once with an empty state.
func TestOutputsFollowTheSchema(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/json.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	toml := filepath.Join(t.TempDir(), "gpuarb.toml")
	if err := os.WriteFile(toml, []byte("schema_version = 1\n[[rule]]\npriority = 1.5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sound, other := filepath.Join(t.TempDir(), "sound.toml"), filepath.Join(t.TempDir(), "other.toml")
	for path, text := range map[string]string{sound: "", other: "[defaults]\nmemory.max = \"1G\"\n"} {
		if err := os.WriteFile(path, []byte("schema_version = 1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	full, bare := startDaemon(t, everything), startDaemon(t, nil)
	none := []string{"GPUARB_SOCKET=/no/socket"}
	for _, c := range []struct {
		env  []string
		args string
	}{
		{full.environment(t), "ps"}, {full.environment(t), "jobs"}, {full.environment(t), "queue"}, {full.environment(t), "why 7"}, {bare.environment(t), "why"}, {full.environment(t), "devices"},
		{bare.environment(t), "ps"}, {bare.environment(t), "jobs"}, {bare.environment(t), "queue"}, {bare.environment(t), "devices"},
		{full.environment(t), "version"}, {none, "version"}, {none, "doctor"}, {nil, "plan --arms 1 --streams 2"}, {full.environment(t), "plan"}, {bare.environment(t), "plan"},
		{full.environment(t), "plan --arms 8 --min 2G"}, {bare.environment(t), "plan --arms 8 --min 2G"}, {full.environment(t), "limit 42"}, {full.environment(t), "limit 42 memory.max=1 --dry-run"},
		{full.environment(t), "limit --device 0"}, {full.environment(t), "claim"}, {bare.environment(t), "claim --device 1"},
		{nil, "config check " + toml}, {full.environment(t), "config diff " + sound}, {full.environment(t), "config diff " + other}, {nil, "status --root " + root},
	} {
		name := strings.Join(strings.Fields(c.args)[:1], "")
		switch {
		case name == "config":
			name = strings.Join(strings.Fields(c.args)[:2], " ")
		case strings.Contains(c.args, "--min"):
			name = "plan --min"
		case strings.Contains(c.args, "--dry-run"):
			name = "limit --dry-run"
		case strings.Contains(c.args, "--streams"):
			name = "plan --streams"
		}
		command := gpuarb(t, c.env, append(strings.Fields(c.args), "--json")...)
		if name == "claim" { // the claim ends with the shell that asked for it, not with this test
			shell := bounded.Command(t, bounded.Patience, "bash", "-c", `said=$("$@") && echo "$said"`, "bash")
			shell.Env, shell.Args = command.Env, append(shell.Args, command.Args...)
			command = shell
		}
		got := finish(t, command)
		var value any
		if err := json.Unmarshal([]byte(got.stdout), &value); err != nil {
			t.Errorf("gpuarb %s --json: %v\n%v", c.args, err, got)
			continue
		}
		printed, err := schema.Defs["gpuarb "+name].Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := printed.Validate(value); err != nil {
			t.Errorf("gpuarb %s --json: %v", c.args, err)
		}
	}
}

// everything makes a state in which every optional value occurs, and is missing elsewhere.
func everything(d *fakeDaemon) {
	someLeases(d)
	d.state.Config = figures.ConfigState{Text: config.Defaults().String() + "\n[[rule]]\nname = \"lab\"\n"}
	d.state.Rules = []figures.RuleState{{Name: "lab", Title: "rule lab", StreamsBy: "root", Devices: []figures.RuleDeviceState{{Max: 5, MaxBy: "root"}}}}
	d.state.Leases = append(d.state.Leases, figures.LeaseState{PID: 43, User: "bob", State: figures.StateWaiting, Budget: 1 << 30,
		Job: 7, Shared: "user bob", Active: true, ActiveMs: 5})
	d.state.Queue = []figures.TicketState{{Pos: 1, Ticket: 12, PID: 42, User: "ada", Device: -1, Wants: "a slot", Job: 7},
		{Pos: 2, Ticket: 13, PID: 43, Device: 1, Wants: "1 GiB", WantsBytes: 1 << 30, Job: 7}}
	d.state.Jobs = []figures.JobState{{ID: 7, User: "bob", PID: 43, Processes: []int{43},
		Devices: []figures.JobDeviceState{{Device: 0, Used: 5, Reserved: 6}, {Device: 1}}}, {ID: 8}}
	d.state.Devices[0].SlotsMax = 2
	d.state.Devices[0].Holders = []figures.HolderState{{Job: 7, PID: 43, User: "bob", Kind: figures.HoldsClaim}}
	d.state.Devices[1].UnmanagedBy = []figures.UnmanagedState{{PID: 9, User: "root", Command: "X", Bytes: 5}, {PID: 10, Command: "?"}}
}
