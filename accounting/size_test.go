package accounting

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// Sizes that users write ("4GiB", "25%", "max") are parsed, printed and applied to a device as the documentation says, and a mistake gets a
// message that says what is wrong. The test of the C library reads the expected values from the same table, testdata/sizes.tsv.

// TestParseSize checks the parser against the table that the parser of the C library is checked against too.
func TestParseSize(t *testing.T) {
	table, err := os.ReadFile("testdata/sizes.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for row := range strings.Lines(string(table)) {
		want, text, ok := strings.Cut(strings.TrimSuffix(row, "\n"), "\t")
		if !ok {
			continue // a comment
		}
		size, err := ParseSize(text)
		got := size.String()
		switch {
		case err != nil:
			got = "no"
		case size.PerMille != 0:
			got = strconv.Itoa(int(size.PerMille)) + "/1000"
		}
		if got != want {
			t.Errorf("ParseSize(%q) = %s, %v; want %s", text, got, err, want)
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

func TestSizeWithUnit(t *testing.T) {
	for want, size := range map[string]Size{
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
		if got := size.WithUnit(); got != want {
			t.Errorf("%+v.WithUnit() = %q, want %q", size, got, want)
		}
	}
}

func TestSizeOf(t *testing.T) {
	for _, c := range []struct {
		size        Size
		total, want Bytes
	}{
		{Size{Bytes: 7}, 3, 7}, {Size{PerMille: 250}, 1000, 250}, {Size{PerMille: 333}, 10, 3},
		{Size{PerMille: 1000}, Max, Max}, {Size{PerMille: 1 << 31}, Max, Max},
		{Size{Max: true, Bytes: 1}, 5, Max}, {Size{}, 5, 0},
	} {
		if got := c.size.Of(c.total); got != c.want {
			t.Errorf("%s of %d: %d, want %d", c.size, c.total, got, c.want)
		}
	}
}

func TestMoreThan(t *testing.T) {
	sizes := []Size{{}, {Bytes: 1}, {Bytes: 2}, {PerMille: 1}, {PerMille: 2}, {Max: true}}
	more := map[[2]Size]bool{{sizes[1], sizes[0]}: true, {sizes[2], sizes[0]}: true, {sizes[2], sizes[1]}: true, {sizes[4], sizes[3]}: true}
	for _, s := range sizes {
		for _, u := range sizes {
			if got := s.MoreThan(u); got != more[[2]Size{s, u}] {
				t.Errorf("%v is more than %v: %v", s, u, got)
			}
		}
	}
}

func TestParseCount(t *testing.T) {
	for text, want := range map[string]int{"1": 1, "2147483647": 1<<31 - 1, "0": 0, "-1": 0, "2147483648": 0, "": 0, "1G": 0, "max": 0} {
		if got, err := ParseCount(text); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}

// FuzzParseSize: a parsed size formats to a text that parses to the same size, and nothing panics.
func FuzzParseSize(f *testing.F) {
	for _, seed := range []string{"4G", "4GiB", "4096M", "1.5G", "25%", "12.5%", "max", "0", "-1", "9223372036854775807", "4GB", "1e9", "0.1K", "", ".", "1..2", "4 GiB"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		size, err := ParseSize(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("ParseSize(%q): the message has several lines: %q", text, err)
			}
			return
		}
		if size.PerMille > 1000 {
			t.Errorf("ParseSize(%q) = %+v: more than a whole device", text, size)
		}
		again, err := ParseSize(size.WithUnit())
		if err != nil || again != size {
			t.Errorf("ParseSize(%q) = %+v; spelled %q it reads as %+v, %v", text, size, size.WithUnit(), again, err)
		}
	})
}
