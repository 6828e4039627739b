package web

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// policy is the Content-Security-Policy: a document loads from this origin alone, without inline scripts, styles or frames.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guard passes on only requests that read, name one of our hosts, and come from no other site's page.
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

// ServeHTTP sets the headers that every answer has, refusals included.
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
		http.Error(w, "only GET and HEAD are answered: nothing can be changed here", http.StatusMethodNotAllowed)
	case !g.isOurs(r):
		http.Error(w, "gpuarb does not answer requests for this host name: add it to hosts in [http] of gpuarb.toml", http.StatusMisdirectedRequest)
	case isForeign(r):
		http.Error(w, "requests from pages of other sites are refused", http.StatusForbidden)
	default:
		g.next.ServeHTTP(w, r)
	}
}

// isOurs says whether the Host of a request is one of ours. A page of another site can make its own name resolve to
// this machine (DNS rebinding); its requests then carry that name.
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

// isLocal says whether addr is the local address at which the request arrived.
func isLocal(r *http.Request, addr netip.Addr) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.AddrPort().Addr().Unmap().WithZone("") == addr.Unmap().WithZone("")
}

// isForeign says whether a page of another site sent the request. Following a link from there is allowed: it shows that page no answer.
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
