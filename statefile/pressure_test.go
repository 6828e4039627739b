package statefile

import (
	"math"
	"path/filepath"
	"testing"
)

// addPressure adds a record that holds a value.
func addPressure(t *testing.T, f *File, key byte, v PressureValue) *Pressure {
	t.Helper()
	i, row, err := f.Pressures.New()
	if err != nil {
		t.Fatal(err)
	}
	row.Kind, row.Key[0] = PressureOfUser, key
	row.Set(v)
	f.Pressures.Commit(i)
	return row
}

func pressuresOf(f *File, alive int64) map[byte][2]int64 {
	all := map[byte][2]int64{}
	f.Pressures.Each(func(_ int, r *Pressure) {
		some, full := r.Totals(alive)
		all[r.Key[0]] = [2]int64{some, full}
	})
	return all
}

// TestPressuresOutliveTheMapping: with the last sign of life, and up to it.
func TestPressuresOutliveTheMapping(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	f, _ := open(t, path)
	addPressure(t, f, 1, PressureValue{Some: 100, Full: 10, Since: 5_000})
	addPressure(t, f, 2, PressureValue{Some: 100, Full: 10, Since: 5_000, States: PressureSome})
	row := addPressure(t, f, 3, PressureValue{Since: 5_000})
	row.Set(PressureValue{Some: 7, Since: 5_500, States: PressureSome | PressureFull})
	row.Values[1-row.Holds].Some = 99 // a daemon that dies as it writes the next one
	f.SetAlive(6_000)

	g, _ := open(t, path)
	if g.Volatile() != nil || g.Alive(9_000) != 6_000 || g.Alive(100) != 100 {
		t.Errorf("%v, alive at %d", g.Volatile(), g.Alive(9_000))
	}
	got := pressuresOf(g, g.Alive(9_000))
	if want := (map[byte][2]int64{1: {100, 10}, 2: {1_100, 10}, 3: {507, 500}}); len(got) != 3 || got[1] != want[1] || got[2] != want[2] || got[3] != want[3] {
		t.Errorf("totals %v, want %v", got, want)
	}
}

// TestDamagedPressures: what cannot be is nothing, and full is never more than some.
func TestDamagedPressures(t *testing.T) {
	for _, test := range []struct {
		v    PressureValue
		want [2]int64
	}{
		{PressureValue{Some: -5, Full: -7, Since: 1}, [2]int64{}},
		{PressureValue{Some: 5, Full: 50, Since: 1}, [2]int64{5, 5}},
		{PressureValue{Some: 5, Full: 5, Since: 2_000, States: PressureSome | PressureFull}, [2]int64{5, 5}}, // it began after the last sign of life
		{PressureValue{Some: 5, Since: -9, States: PressureSome}, [2]int64{5, 0}},
		{PressureValue{Some: math.MaxInt64, Full: 3, Since: 1, States: PressureSome}, [2]int64{}}, // more than the machine has run
		{PressureValue{Some: 1_001, Since: 1}, [2]int64{}},
	} {
		var p Pressure
		p.Set(test.v)
		p.Holds |= 1 << 20
		if some, full := p.Totals(1_000); some != test.want[0] || full != test.want[1] {
			t.Errorf("%+v: %d and %d, want %v", test.v, some, full, test.want)
		}
	}
}
