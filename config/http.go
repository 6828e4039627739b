package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// HTTP is where the page and the metrics are served, and under which names.
type HTTP struct {
	Listen Listen
	Hosts  []string // further names by which browsers may call it, lower case
}

// Listen is an address that is listened on: IP:PORT, or unix:/PATH. Empty: none.
type Listen string

// listenOff is how a later file takes the address back.
const listenOff = "none"

// Network splits an address as package net wants it: "tcp" or "unix".
func (l Listen) Network() (network, address string) {
	if path, ok := strings.CutPrefix(string(l), "unix:"); ok {
		return "unix", path
	}
	return "tcp", string(l)
}

// maxUnixPath is the longest path that the kernel takes for a socket.
const maxUnixPath = 107

func readListen(d *draft, v value) error {
	wrong := v.wrongType(`an address ("127.0.0.1:9432", "[::]:9432"), a socket ("unix:/run/gpuarb/http") or "none"`)
	if v.kind != unstable.String {
		return wrong
	}
	listen := Listen(v.text)
	if v.text == listenOff {
		listen = ""
	}
	d.listen = &listen
	network, address := listen.Network()
	switch {
	case listen == "":
		return nil
	case network == "unix" && (!filepath.IsAbs(address) || strings.ContainsRune(address, 0)):
		return errors.New("the path of a socket must be absolute")
	case network == "unix" && len(address) > maxUnixPath:
		return fmt.Errorf("the path of a socket has at most %d bytes", maxUnixPath)
	case network == "unix":
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return wrong
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is no port: a number from 0 to 65535", port)
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "localhost" {
		return fmt.Errorf(`%q is no IP address; "0.0.0.0" or "[::]" stands for all of the machine's`, host)
	}
	return nil
}

// maxHosts bounds the names, which all have to be told to the process that serves the page.
const maxHosts = 64

// hostName is what browsers send as a host: labels of a domain.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*$`)

func readHosts(d *draft, v value) error {
	if v.kind != unstable.Array {
		return v.wrongType(`a list of names (["gpu.example.org"])`)
	}
	d.hosts = []string{}
	for _, host := range v.list {
		addr, err := netip.ParseAddr(host.text)
		isAddress := err == nil && addr.Zone() == ""
		name := strings.ToLower(host.text)
		switch {
		case host.kind != unstable.String || len(name) > 253 || !isAddress && !hostName.MatchString(name):
			return fmt.Errorf("%s is no name of a host: write it without scheme, port and slash", host.shown())
		case len(d.hosts) == maxHosts:
			return fmt.Errorf("are more than %d names", maxHosts)
		case slices.Contains(d.hosts, name):
			return fmt.Errorf("%q is there twice", name)
		}
		d.hosts = append(d.hosts, name)
	}
	return nil
}

// write spells the section as a file has it; nothing where nothing listens.
func (h HTTP) write(b *strings.Builder) {
	if h.Listen == "" && len(h.Hosts) == 0 {
		return
	}
	b.WriteString("\n[http]\n")
	listen := string(h.Listen)
	if listen == "" {
		listen = listenOff
	}
	writeKey(b, "listen", listen)
	if len(h.Hosts) > 0 {
		fmt.Fprintf(b, "hosts = [%s]\n", strings.Join(quoted(h.Hosts), ", "))
	}
}
