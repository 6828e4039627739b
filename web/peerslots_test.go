package web

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// This file checks how the slots for connections are shared among peers, and which user or network
// a connection counts for. server_test.go has the bounds on connections and readers.

// TestPlaces checks whose slot a newcomer gets.
func TestPlaces(t *testing.T) {
	p := newPeerSlots(4)
	evicted := ""
	var leave func()
	for _, step := range []struct {
		peer    string
		want    bool
		then    string
		evicted string
	}{
		{"a", true, "a", ""}, {"a", true, "aa", ""}, {"a", true, "aaa", ""}, {"a", true, "aaaa", ""},
		{"a", false, "aaaa", ""}, {"b", true, "aaab", "a"}, {"b", true, "aabb", "a"}, {"b", false, "aabb", ""}, {"a", false, "aabb", ""},
		{"d", true, "", ""},
	} {
		evicted = ""
		last, ok := p.enter(step.peer, func() { evicted = step.peer })
		if ok {
			leave = last
		}
		got := ""
		for _, peer := range []string{"a", "b"} {
			got += strings.Repeat(peer, len(p.of[peer]))
		}
		if step.peer == "d" { // a or b has lost a slot, because both had the same number
			if !ok || len(got) != 3 || evicted == "" {
				t.Errorf("a third peer enters: %t, then %q", ok, got)
			}
			continue
		}
		if ok != step.want || got != step.then || p.taken != len(got) || evicted != step.evicted {
			t.Errorf("%s enters: %t, then %q, %q was evicted; want %+v", step.peer, ok, got, evicted, step)
		}
	}
	leave()
	leave()
	if p.taken != 3 || p.of["d"] != nil {
		t.Errorf("one has left, %d places are taken, by %v", p.taken, p.of)
	}
}

// TestPeer checks that the peer of a connection from this machine is its user, for each address of
// the machine.
func TestPeer(t *testing.T) {
	want := fmt.Sprintf("user %d", os.Geteuid())
	dir, err := os.MkdirTemp("", "gpuarb-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, where := range [][3]string{
		{"tcp", "127.0.0.1:0", "127.0.0.1"}, {"tcp", "127.0.0.1:0", "127.0.0.77"}, {"tcp", "[::]:0", "127.0.0.1"}, {"tcp", "[::1]:0", "::1"},
		{"unix", filepath.Join(dir, "http"), ""},
	} {
		if got := peerAt(t, where[0], where[1], where[2]); got != want {
			t.Errorf("of a connection from %v: %q, want %q", where, got, want)
		}
	}
	for address, want := range map[string]string{"192.0.2.7": "192.0.2.7", "2001:db8:1:2:3::4": "2001:db8:1:2::/64"} {
		if got := peerNetwork(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is %q, want %q", address, got, want)
		}
	}
}

// peerAt listens at address, connects to that listener with from as the client's own address, and
// returns the peer that peerOf finds.
func peerAt(t *testing.T, network, address, from string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to, d := l.Addr().String(), net.Dialer{}
	if network == "tcp" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
		host := from
		if host == "127.0.0.77" {
			host = "127.0.0.1"
		}
		_, port, _ := net.SplitHostPort(to)
		to = net.JoinHostPort(host, port)
	}
	c, err := d.DialContext(t.Context(), network, to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	return peerOf(accepted)
}
