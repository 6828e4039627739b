package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"testing"
)

// This test holds that Grafana can load the board: its fields, variables, panels and units follow Grafana's documented
// rules. board_test.go has the queries.

// source is the data source of a panel, a query or a variable: the variable datasource, so that the board can be
// imported anywhere.
type source struct{ Type, UID string }

// panel has the fields of a panel that Grafana requires (Grafana 10 and 11, "Dashboard JSON model").
type panel struct {
	ID         int
	Title      string
	Type       string
	GridPos    struct{ X, Y, W, H int }
	Datasource *source
	Collapsed  *bool
	Panels     []panel
	Targets    []struct {
		RefID      string
		Datasource *source
	}
	FieldConfig struct{ Defaults struct{ Unit string } }
	Options     map[string]any
}

// units are the units that the board may use, from Grafana's list (its package grafana-data, valueFormats). Grafana shows a
// word outside its list as a suffix, without a warning.
var units = []string{"short", "bytes", "s", "percentunit", "ops"}

// TestBoardForm checks the board by Grafana's documented rules, because Debian has no Grafana to load it.
func TestBoardForm(t *testing.T) {
	text, err := os.ReadFile("../../daemon/metrics/board/gpuarb.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		UID, Title    string
		SchemaVersion int
		Refresh       string
		Templating    struct {
			List []struct {
				Name, Type, Definition string
				Query                  any
				Datasource             *source
			}
		}
		Panels []panel
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	// 39 is the schema version of Grafana 10.4 and 11.0. A later Grafana migrates the board, an older one ignores unknown fields.
	if board.SchemaVersion != 39 || board.Title == "" || !regexp.MustCompile(`^[a-zA-Z0-9_-]{1,40}$`).MatchString(board.UID) {
		t.Errorf("schemaVersion %d, title %q, uid %q", board.SchemaVersion, board.Title, board.UID)
	}
	variables := map[string]bool{"__rate_interval": true, "__range": true, "__interval": true}
	for i, v := range board.Templating.List {
		if i == 0 && (v.Name != "datasource" || v.Type != "datasource" || v.Query != "prometheus") {
			t.Errorf("the first variable is %+v, and is to be the data source, which the others need", v)
		}
		if variables[v.Name] || i > 0 && !v.Datasource.is() {
			t.Errorf("the variable %q is there twice, or asks elsewhere: %+v", v.Name, v.Datasource)
		}
		variables[v.Name] = true
	}
	for _, m := range regexp.MustCompile(`\$\{?([a-zA-Z_]+)`).FindAllStringSubmatch(string(text), -1) {
		if !variables[m[1]] && m[1] != "__all" && m[1] != "__field" {
			t.Errorf("the board uses $%s, which is no variable of it or of Grafana", m[1])
		}
	}
	checkPanels(t, board.Panels)
}

func (s *source) is() bool { return s != nil && *s == source{"prometheus", "${datasource}"} }

func checkPanels(t *testing.T, panels []panel) {
	t.Helper()
	ids := map[int]bool{}
	for i, p := range panels {
		if p.ID == 0 || ids[p.ID] || p.Title == "" {
			t.Errorf("the panel %q has the id %d, which it needs for itself", p.Title, p.ID)
		}
		ids[p.ID] = true
		if g := p.GridPos; g.X < 0 || g.Y < 0 || g.W < 1 || g.H < 1 || g.X+g.W > 24 {
			t.Errorf("the panel %q is at %+v, beyond the 24 columns", p.Title, g)
		}
		for _, other := range panels[:i] {
			if a, b := p.GridPos, other.GridPos; a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("the panels %q and %q lie over each other", p.Title, other.Title)
			}
		}
		p.check(t)
	}
}

func (p panel) check(t *testing.T) {
	t.Helper()
	switch p.Type {
	case "row":
		if p.Collapsed == nil || *p.Collapsed || len(p.Panels) > 0 {
			t.Errorf("the row %q is not open with its panels behind it: %+v", p.Title, p)
		}
		return
	case "stat":
		if p.Options["reduceOptions"] == nil {
			t.Errorf("the panel %q does not say which value it shows", p.Title)
		}
	case "timeseries":
		if p.Options["legend"] == nil || p.Options["tooltip"] == nil {
			t.Errorf("the panel %q has no legend or tooltip: %v", p.Title, p.Options)
		}
	default:
		t.Errorf("the panel %q is a %q", p.Title, p.Type)
	}
	if !p.Datasource.is() || !slices.Contains(units, p.FieldConfig.Defaults.Unit) {
		t.Errorf("the panel %q has the data source %+v and the unit %q", p.Title, p.Datasource, p.FieldConfig.Defaults.Unit)
	}
	refs := map[string]bool{}
	for _, q := range p.Targets {
		if q.RefID == "" || refs[q.RefID] || !q.Datasource.is() {
			t.Errorf("a query of the panel %q is named %q and asks %+v", p.Title, q.RefID, q.Datasource)
		}
		refs[q.RefID] = true
	}
}
