package web

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// policy lets a document have what comes from here and nothing else, and no script, style or frame inside it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guard answers only those who may be answered: readers, who came by a name of ours, and whose page is ours.
type guard struct {
	hosts map[string]bool // lower case
	next  http.Handler
}

// newGuard takes the names that the configuration adds to the machine's own.
func newGuard(hosts []string, next http.Handler) *guard {
	g := &guard{hosts: map[string]bool{"localhost": true}, next: next}
	if name, err := os.Hostname(); err == nil {
		g.hosts[strings.ToLower(name)] = true
	}
	for _, host := range hosts {
		g.hosts[strings.ToLower(host)] = true
	}
	return g
}

// ServeHTTP sets what every answer has, also one that says no.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "there is nothing here that could be changed", http.StatusMethodNotAllowed)
	case !g.isOurs(r):
		http.Error(w, "gpuarb does not answer to this name: add it to hosts in [http] of gpuarb.toml", http.StatusMisdirectedRequest)
	case isForeign(r):
		http.Error(w, "pages of other sites are not answered", http.StatusForbidden)
	default:
		g.next.ServeHTTP(w, r)
	}
}

// isOurs says whether a request names us as its host. A page of another site can have its own name lead here
// (DNS rebinding); its requests then carry that name.
func (g *guard) isOurs(r *http.Request) bool {
	host := hostOf(r.Host)
	if g.hosts[host] {
		return true
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	return addr.IsLoopback() || isLocal(r, addr)
}

// hostOf is the host of a Host header, without its port, lower case.
func hostOf(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// isLocal says whether the request came in at an address.
func isLocal(r *http.Request, addr netip.Addr) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.AddrPort().Addr().Unmap().WithZone("") == addr.Unmap().WithZone("")
}

// isForeign says whether another site's page asks. Following a link from there is no asking.
func isForeign(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" {
		_, host, ok := strings.Cut(origin, "://")
		return !ok || !strings.EqualFold(host, r.Host)
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return r.Header.Get("Sec-Fetch-Mode") != "navigate"
	}
	return false
}
