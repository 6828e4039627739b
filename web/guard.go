package web

// This file refuses requests that could harm: requests that do not only read, requests for unknown
// host names, and requests from pages of other sites. server.go puts the guard before all handlers.

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// policy is the Content-Security-Policy. A document loads only from this origin, without inline
// scripts, styles or frames.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guard passes on requests that only read, name a known host, and do not come from a page of
// another site.
type guard struct {
	hosts map[string]bool // lower case
	next  http.Handler
}

// newGuard adds hosts from the configuration to the names of this machine.
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

// ServeHTTP sets the headers of every answer, refusals included.
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
	case !g.isKnownHost(r):
		http.Error(w, "gpuarb does not answer requests for this host name: add it to hosts in [http] of gpuarb.toml", http.StatusMisdirectedRequest)
	case isForeign(r):
		http.Error(w, "requests from pages of other sites are refused", http.StatusForbidden)
	default:
		g.next.ServeHTTP(w, r)
	}
}

// isKnownHost reports whether the Host of a request is a name of this machine. A page of another
// site can make its own name resolve to this machine (DNS rebinding); its requests then carry that
// name.
func (g *guard) isKnownHost(r *http.Request) bool {
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

// hostOf returns the host of a Host header in lower case, without the port.
func hostOf(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// isLocal reports whether the request arrived at the local address addr.
func isLocal(r *http.Request, addr netip.Addr) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.AddrPort().Addr().Unmap().WithZone("") == addr.Unmap().WithZone("")
}

// isForeign reports whether a page of another site sent the request. A link on such a page may be
// followed, because the page does not see the answer.
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
