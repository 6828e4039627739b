package config

import (
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
)

func TestParseSize(t *testing.T) {
	bytes := func(n uint64) arbiter.Size { return arbiter.Size{Bytes: accounting.Bytes(n)} }
	for text, want := range map[string]arbiter.Size{
		"0":                   {},
		"0%":                  {},
		"1":                   bytes(1),
		"4096":                bytes(4096),
		"4096B":               bytes(4096),
		"1K":                  bytes(1 << 10),
		"4096M":               bytes(4 << 30),
		"4G":                  bytes(4 << 30),
		"4g":                  bytes(4 << 30),
		"4GiB":                bytes(4 << 30),
		"4gib":                bytes(4 << 30),
		"4GB":                 bytes(4 << 30), // as everywhere in gpuarb, binary
		" 4 GiB ":             bytes(4 << 30),
		"1.5G":                bytes(3 << 29),
		"0.5K":                bytes(512),
		"7.9G":                bytes(8482560409), // rounded down
		"0.3K":                bytes(307),
		"1.000":               bytes(1),
		"1T":                  bytes(1 << 40),
		"9223372036854775807": bytes(1<<63 - 1),
		"25%":                 {PerMille: 250},
		"12.5%":               {PerMille: 125},
		"0.1%":                {PerMille: 1},
		"100%":                {PerMille: 1000},
		"max":                 {Max: true},
		"MAX":                 {Max: true},
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestParseSizeMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                     `"" is no size: it is empty; write bytes, "4GiB", "25%" or "max"`,
		"-1":                   `"-1" is no size: it is negative`,
		"4BB":                  `"4BB" is no size: its unit "BB" is unknown; K, M, G, T (powers of 1024) and % are known`,
		"4X":                   `"4X" is no size: its unit "X" is unknown; K, M, G, T (powers of 1024) and % are known`,
		"4iB":                  `"4iB" is no size: its unit "iB" is unknown; K, M, G, T (powers of 1024) and % are known`,
		"G":                    `"G" is no size: it does not start with a number; write bytes, "4GiB", "25%" or "max"`,
		"+4G":                  `"+4G" is no size: it does not start with a number; write bytes, "4GiB", "25%" or "max"`,
		"1.":                   `"1." is no size: it does not start with a number; write bytes, "4GiB", "25%" or "max"`,
		"1.2.3G":               `"1.2.3G" is no size: it does not start with a number; write bytes, "4GiB", "25%" or "max"`,
		"1e9":                  `"1e9" is no size: its unit "e9" is unknown; K, M, G, T (powers of 1024) and % are known`,
		"1.5":                  `"1.5" is no size: there is no part of a byte`,
		"9223372036854775808":  `"9223372036854775808" is no size: it is larger than 8 EiB; for no limit write "max"`,
		"18446744073709551616": `"18446744073709551616" is no size: it is larger than 8 EiB; for no limit write "max"`,
		"9000000T":             `"9000000T" is no size: it is larger than 8 EiB; for no limit write "max"`,
		"101%":                 `"101%" is no size: it is more than 100% of a device`,
		"100.01%":              `"100.01%" is no size: it is more than 100% of a device`,
		"0.05%":                `"0.05%" is no size: a share goes in steps of 0.1%`,
		"unlimited":            `"unlimited" is no size: it does not start with a number; write bytes, "4GiB", "25%" or "max"`,
		"00000000000000000000000000000000000000000": `"0000000000000000000000000000000000000000…" is no size: it is longer than 40 characters`,
	} {
		got, err := ParseSize(text)
		if err == nil || err.Error() != want {
			t.Errorf("ParseSize(%q) = %+v, %v\nwant %s", text, got, err, want)
		}
	}
}

func TestFormatSize(t *testing.T) {
	for want, size := range map[string]arbiter.Size{
		"max":   {Max: true, Bytes: 5},
		"25%":   {PerMille: 250},
		"12.5%": {PerMille: 125},
		"0":     {},
		"1":     {Bytes: 1},
		"1KiB":  {Bytes: 1 << 10},
		"4GiB":  {Bytes: 4 << 30},
		"3TiB":  {Bytes: 3 << 40},
		"1537":  {Bytes: 1537},
	} {
		if got := FormatSize(size); got != want {
			t.Errorf("FormatSize(%+v) = %q, want %q", size, got, want)
		}
	}
}
