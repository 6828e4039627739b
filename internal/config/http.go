package config

// This file reads the values of [http]. schema.go lists the keys.

import (
	"cmp"
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

// listenOff is the value with which a later file removes the address.
const listenOff = "none"

// maxUnixPath is the longest path that the kernel accepts for a socket, in bytes.
const maxUnixPath = 107

// listens reads addresses; "none" removes the address of an earlier file.
var listens = kind[Listen]{
	read: func(v value) (Listen, error) {
		if v.kind == unstable.String && v.text == listenOff {
			return "", nil
		}
		return Listen(v.text), checkListen(v)
	},
	format: func(l Listen) string { return quote(cmp.Or(string(l), listenOff)) },
}

func checkListen(v value) error {
	wrong := v.wrongType(`an address ("127.0.0.1:9432", "[::]:9432"), a socket ("unix:/run/gpuarb/http") or "none"`)
	network, address := Listen(v.text).Network()
	switch {
	case v.kind != unstable.String:
		return wrong
	case v.text == "":
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

// maxHosts bounds the number of host names, because the process that serves the page must be told
// all.
const maxHosts = 64

// hostName matches the host names that browsers send: labels of a domain.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*$`)

var hosts = kind[[]string]{
	read: func(v value) ([]string, error) {
		if v.kind != unstable.Array {
			return nil, v.wrongType(`a list of names (["gpu.example.org"])`)
		}
		list := []string{}
		for _, host := range v.list {
			addr, err := netip.ParseAddr(host.text)
			isAddress := err == nil && addr.Zone() == ""
			name := strings.ToLower(host.text)
			switch {
			case host.kind != unstable.String || len(name) > 253 || !isAddress && !hostName.MatchString(name):
				return nil, fmt.Errorf("%s is no name of a host: write it without scheme, port and slash", host.display())
			case len(list) == maxHosts:
				return nil, fmt.Errorf("are more than %d names", maxHosts)
			case slices.Contains(list, name):
				return nil, fmt.Errorf("%q is there twice", name)
			}
			list = append(list, name)
		}
		return list, nil
	},
	format: spellList,
}
