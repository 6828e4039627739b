package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// This file tests the sections [http] and [privacy]: which addresses and names of hosts are
// accepted, and the message for each mistake. mistake_test.go tests the other sections.

func TestHTTPAndPrivacy(t *testing.T) {
	config := parse(t, "schema_version = 1\n[http]\nlisten = \"unix:/run/gpuarb/http\"\nhosts = [\"GPU.example.org\", \"10.0.0.5\", \"fd00::5\"]\n[privacy]\ncommands = \"own\"\n")
	want := HTTP{Listen: "unix:/run/gpuarb/http", Hosts: []string{"gpu.example.org", "10.0.0.5", "fd00::5"}}
	if diff := cmp.Diff(want, config.HTTP); diff != "" || config.Commands != CommandsOwn {
		t.Errorf("(-want +got):\n%s\ncommands = %q", diff, config.Commands)
	}
	checkRoundTrip(t, config)
	if d := Defaults(); d.HTTP.Listen != "" || d.Commands != CommandsAll {
		t.Errorf("without a file something listens, or hides: %+v", d)
	}
}

// TestHTTPInSeveralFiles checks that a later file changes or removes the address, and leaves other
// keys as they are.
func TestHTTPInSeveralFiles(t *testing.T) {
	l := newLoader()
	l.file("a.toml", []byte("schema_version = 1\n[http]\nlisten = \"localhost:9432\"\nhosts = [\"a\"]\n"), nil, true)
	l.file("b.toml", []byte("http.listen = \"none\"\n"), nil, false)
	config, err := l.finish()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(HTTP{Hosts: []string{"a"}}, config.HTTP); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestListenNetwork(t *testing.T) {
	for listen, want := range map[Listen][2]string{
		"127.0.0.1:9432": {"tcp", "127.0.0.1:9432"}, "unix:/run/http": {"unix", "/run/http"},
	} {
		if network, address := listen.Network(); [2]string{network, address} != want {
			t.Errorf("%s is %s %s, want %v", listen, network, address, want)
		}
	}
}

var httpMistakes = map[string]string{
	`listen = 9432`:                        `listen: must be an address ("127.0.0.1:9432", "[::]:9432"), a socket ("unix:/run/gpuarb/http") or "none", not 9432`,
	`listen = ":9432"`:                     `listen: "" is no IP address; "0.0.0.0" or "[::]" stands for all of the machine's`,
	`listen = "gpu.example.org:80"`:        `listen: "gpu.example.org" is no IP address; "0.0.0.0" or "[::]" stands for all of the machine's`,
	`listen = "127.0.0.1:http"`:            `listen: "http" is no port: a number from 0 to 65535`,
	`listen = "127.0.0.1:65536"`:           `listen: "65536" is no port: a number from 0 to 65535`,
	`listen = "unix:http"`:                 `listen: the path of a socket must be absolute`,
	`listen = "unix:/` + long + `"`:        `listen: the path of a socket has at most 107 bytes`,
	`hosts = "a"`:                          `hosts: must be a list of names (["gpu.example.org"]), not "a"`,
	`hosts = ["http://a"]`:                 `hosts: "http://a" is no name of a host: write it without scheme, port and slash`,
	`hosts = ["a:80"]`:                     `hosts: "a:80" is no name of a host: write it without scheme, port and slash`,
	`hosts = ["*.example.org"]`:            `hosts: "*.example.org" is no name of a host: write it without scheme, port and slash`,
	`hosts = ["a", "A"]`:                   `hosts: "a" is there twice`,
	"listen = \"none\"\n[privacy]\nx=1":    `unknown key "x" in [privacy]; known are commands`,
	"[privacy]\ncommands = \"some\"":       `commands: must be "all" or "own", not "some"`,
	"commands = \"own\"":                   `commands: cannot be set in [http]; it belongs in [privacy]`,
	"[[privacy]]":                          `[[privacy]]: there is only one; write [privacy]`,
	"hosts = [\"fe80::1%eth0\"]":           `hosts: "fe80::1%eth0" is no name of a host: write it without scheme, port and slash`,
	"[defaults]\nlisten = \"127.0.0.1:9\"": `listen: cannot be set in [defaults]; it belongs in [http]`,
}

var long = strings.Repeat("x", 107)

func TestHTTPMistakes(t *testing.T) {
	for text, want := range httpMistakes {
		_, err := loadText("f.toml", "schema_version = 1\n[http]\n"+text+"\n")
		var mistakes, ok = err.(Mistakes)
		if !ok || len(mistakes) != 1 || mistakes[0].Reason != want {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
}
