package web

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// This file checks which requests the page's server refuses: by method, by the name of the host,
// and by the page that a browser sends them from. server_test.go has the answers to the other
// requests.

// TestGuard checks which requests are answered.
func TestGuard(t *testing.T) {
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	g := newGuard([]string{"gpu.example.org", "10.9.9.9"}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	type headers map[string]string
	for name, c := range map[string]struct {
		method, host string
		headers      headers
		want         int
	}{
		"localhost":                  {"GET", "localhost:9432", nil, 204},
		"through a tunnel":           {"GET", "localhost:8080", nil, 204},
		"upper case, a final dot":    {"GET", "LOCALHOST.", nil, 204},
		"loopback":                   {"GET", "127.0.0.1:9432", nil, 204},
		"loopback of IPv6":           {"GET", "[::1]:9432", nil, 204},
		"the address that came in":   {"GET", "192.168.1.7:9432", nil, 204},
		"the machine's name":         {"GET", strings.ToUpper(machine), nil, 204},
		"a configured name":          {"HEAD", "gpu.example.org", nil, 204},
		"a configured address":       {"GET", "10.9.9.9", nil, 204},
		"rebound":                    {"GET", "evil.example.com:9432", nil, 421},
		"ours as a part":             {"GET", "localhost.evil.example.com", nil, 421},
		"a subdomain of ours":        {"GET", "x.gpu.example.org", nil, 421},
		"another address":            {"GET", "192.168.1.8", nil, 421},
		"none":                       {"GET", "", nil, 421},
		"a change":                   {"POST", "localhost", nil, 405},
		"a question about changes":   {"OPTIONS", "localhost", nil, 405},
		"a deletion of a wrong host": {"DELETE", "evil.example.com", nil, 405},
		"our own page":               {"GET", "localhost:9432", headers{"Origin": "http://localhost:9432", "Sec-Fetch-Site": "same-origin"}, 204},
		"another page":               {"GET", "localhost:9432", headers{"Origin": "http://evil.example.com"}, 403},
		"another port's page":        {"GET", "localhost:9432", headers{"Origin": "http://localhost:80"}, 403},
		"a page without an origin":   {"GET", "localhost:9432", headers{"Origin": "null"}, 403},
		"an image of another page":   {"GET", "localhost:9432", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403},
		"a neighbour's script":       {"GET", "localhost:9432", headers{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403},
		"a link of another page":     {"GET", "localhost:9432", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 204},
		"typed into the browser":     {"GET", "localhost:9432", headers{"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, 204},
	} {
		r := httptest.NewRequest(c.method, "/state", nil)
		r.Host = c.host
		for key, value := range c.headers {
			r.Header.Set(key, value)
		}
		local := &net.TCPAddr{IP: net.IPv4(192, 168, 1, 7), Port: 9432}
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(local)))
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s: %d, want %d", name, w.Code, c.want)
		}
		for header, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
			"Access-Control-Allow-Origin": "",
		} {
			if got := w.Header().Get(header); got != want {
				t.Errorf("%s: %s is %q, want %q", name, header, got, want)
			}
		}
	}
}

// FuzzHost checks that, for any Host header, an accepted name is a known host or a loopback
// address.
func FuzzHost(f *testing.F) {
	for _, host := range []string{"localhost", "[::1]:80", "127.0.0.1", "a:b:c", "[", "evil.example.com", "::1", "[fe80::1%25lo]:1", "localhost:80:80"} {
		f.Add(host)
	}
	g := newGuard(nil, nil)
	f.Fuzz(func(t *testing.T, host string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		if !g.isKnownHost(r) {
			return
		}
		name := hostOf(host)
		if ip := net.ParseIP(name); !g.hosts[name] && (ip == nil || !ip.IsLoopback()) {
			t.Errorf("%q is answered as %q", host, name)
		}
	})
}
