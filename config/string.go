package config

import (
	"fmt"
	"strings"

	"github.com/gpuarb/gpuarb/arbiter"
)

// String spells the configuration in force as a file that Parse reads back to the
// same: every default included, rules and devices in their order.
func (c *Config) String() string {
	var b strings.Builder
	for _, file := range c.Files {
		fmt.Fprintf(&b, "# from %q\n", file)
	}
	if len(c.Files) == 0 {
		b.WriteString("# built-in defaults; no configuration file was read\n")
	}
	defaults := c.Policy.Defaults
	fmt.Fprintf(&b, "schema_version = %d\n\n[defaults]\n", SchemaVersion)
	writeLimits(&b, &defaults.Min, &defaults.Max, &defaults.Scope, &defaults.StreamsMax)
	writeKey(&b, "on_full", "deny")
	writeKey(&b, "on_loss", string(c.OnLoss))
	for _, rule := range c.Policy.Devices {
		b.WriteString("\n[[device]]\n")
		writeDevice(&b, rule)
	}
	for _, rule := range c.Policy.Rules {
		b.WriteString("\n[[rule]]\n")
		writeMatch(&b, rule.Match)
		writeLimits(&b, rule.Min, rule.Max, rule.Scope, rule.StreamsMax)
	}
	return b.String()
}

func writeLimits(b *strings.Builder, min, max *arbiter.Size, scope *arbiter.Scope, streams *int) {
	if max != nil {
		writeKey(b, "memory.max", FormatSize(*max))
	}
	if min != nil {
		writeKey(b, "memory.min", FormatSize(*min))
	}
	if scope != nil {
		writeKey(b, "scope", string(*scope))
	}
	if streams != nil {
		fmt.Fprintf(b, "streams.max = %d\n", *streams)
	}
}

func writeDevice(b *strings.Builder, rule arbiter.DeviceRule) {
	if rule.Match.Index != nil {
		fmt.Fprintf(b, "match.index = %d\n", *rule.Match.Index)
	}
	writeText(b, "match.uuid", rule.Match.UUID)
	writeText(b, "match.pci", rule.Match.PCI)
	writeText(b, "match.vendor", rule.Match.Vendor)
	writeKey(b, "reserve", FormatSize(rule.Reserve))
	writeKey(b, "slots.max", "max")
}

func writeMatch(b *strings.Builder, match arbiter.Match) {
	writeText(b, "match.user", match.User)
	writeText(b, "match.group", match.Group)
	writeText(b, "match.exe", match.Exe)
	writeText(b, "match.command", match.Command)
	writeText(b, "match.cgroup", match.Cgroup)
	writeText(b, "match.unit", match.Unit)
	writeText(b, "match.container", match.Container)
}

func writeText(b *strings.Builder, key, text string) {
	if text != "" {
		writeKey(b, key, text)
	}
}

func writeKey(b *strings.Builder, key, text string) {
	fmt.Fprintf(b, "%s = %s\n", key, quote(text))
}

// quote spells text as a TOML basic string.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			b.WriteString(`\u` + fmt.Sprintf("%04x", r))
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
