package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// String spells the configuration in force as a file that Load reads back to the
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
	writeLimits(&b, rules.Rule{Min: &defaults.Min, Max: &defaults.Max, Scope: &defaults.Scope,
		StreamsMax: &defaults.StreamsMax, OnFull: &defaults.OnFull, WaitTimeout: &defaults.WaitTimeout,
		WaitAfter: &defaults.WaitAfter, Priority: &defaults.Priority, SlotScope: notEmpty(defaults.SlotScope),
		StreamReserve: &defaults.StreamReserve, HostMax: defaults.HostMax})
	writeKey(&b, "on_loss", string(c.OnLoss))
	writeKey(&b, "age_after", c.Policy.AgeAfter.String())
	writeKey(&b, "deadlock_grace", c.Policy.DeadlockGrace.String())
	fmt.Fprintf(&b, "charge_overhead = %t\n", c.Policy.ChargeOverhead)
	if c.Policy.ContextGuess == (accounting.Size{}) { // it was said
		writeKey(&b, "context_reserve", c.Policy.ContextReserve.WithUnit())
	}
	c.HTTP.write(&b)
	b.WriteString("\n[privacy]\n")
	writeKey(&b, "commands", string(c.Commands))
	c.Metrics.write(&b)
	c.DCGM.write(&b)
	for _, rule := range c.Policy.Devices {
		b.WriteString("\n[[device]]\n")
		writeDevice(&b, rule)
	}
	for _, rule := range c.Policy.Rules {
		b.WriteString("\n[[rule]]\n")
		writeText(&b, "name", rule.Key)
		for _, field := range rule.Match.Fields() {
			writeText(&b, "match."+field[0], field[1])
		}
		writeLimits(&b, rule)
	}
	return b.String()
}

// notEmpty is nil for a scope that is not said.
func notEmpty(scope rules.Scope) *rules.Scope {
	if scope == "" {
		return nil
	}
	return &scope
}

func writeLimits(b *strings.Builder, rule rules.Rule) {
	writeIf(b, "memory.max", rule.Max, accounting.Size.WithUnit)
	writeIf(b, "memory.min", rule.Min, accounting.Size.WithUnit)
	writeIf(b, "scope", rule.Scope, func(s rules.Scope) string { return string(s) })
	writeNumber(b, "streams.max", rule.StreamsMax)
	writeIf(b, "on_full", rule.OnFull, func(f rules.OnFull) string { return string(f) })
	writeIf(b, "wait_timeout", rule.WaitTimeout, formatTimeout)
	writeNumber(b, "wait_after", rule.WaitAfter)
	writeNumber(b, "priority", rule.Priority)
	writeIf(b, "slots.scope", rule.SlotScope, func(s rules.Scope) string { return string(s) })
	writeIf(b, "stream_reserve", rule.StreamReserve, formatBytes)
	writeIf(b, "host.max", rule.HostMax, formatBytes)
}

func writeIf[T any](b *strings.Builder, key string, given *T, format func(T) string) {
	if given != nil {
		writeKey(b, key, format(*given))
	}
}

func writeNumber(b *strings.Builder, key string, given *int) {
	if given != nil {
		fmt.Fprintf(b, "%s = %d\n", key, *given)
	}
}

func formatBytes(n accounting.Bytes) string { return accounting.Absolute(n).WithUnit() }

func formatTimeout(d time.Duration) string {
	if d == rules.NoTimeout {
		return "max"
	}
	return d.String()
}

func writeDevice(b *strings.Builder, rule rules.DeviceRule) {
	if rule.Match.Index != nil {
		fmt.Fprintf(b, "match.index = %d\n", *rule.Match.Index)
	}
	writeText(b, "match.uuid", rule.Match.UUID)
	writeText(b, "match.pci", rule.Match.PCI)
	writeText(b, "match.vendor", rule.Match.Vendor)
	if rule.Memory > 0 {
		writeKey(b, "memory", formatBytes(rule.Memory))
	}
	if len(rule.Also) > 0 {
		fmt.Fprintf(b, "also = [%s]\n", strings.Join(quoted(rule.Also), ", "))
	}
	writeKey(b, "reserve", rule.Reserve.WithUnit())
	if rule.SlotsMax == 0 {
		writeKey(b, "slots.max", "max")
	} else {
		fmt.Fprintf(b, "slots.max = %d\n", rule.SlotsMax)
	}
	writeIf(b, "slots.scope", notEmpty(rule.SlotScope), func(s rules.Scope) string { return string(s) })
	writeIf(b, "context_reserve", rule.ContextReserve, accounting.Size.WithUnit)
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
