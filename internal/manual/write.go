package manual

// This file writes the pages and completions into a folder. The command write-share of gpuarb and
// the flag --write-share of gpuarbd call it.

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Write writes pages and completions below a folder, in the layout of /usr/share.
func (b Book) Write(folder string) error {
	files := map[string][]byte{}
	for _, c := range b.pages() {
		c.InitDefaultHelpFlag()
		c.InitDefaultVersionFlag()
		files[fmt.Sprintf("man/man%d/%s.%d", b.Chapter, name(c), b.Chapter)] = []byte(b.Page(c))
	}
	for _, d := range b.Documents {
		text, err := os.ReadFile(d.Path)
		if err != nil {
			return err
		}
		files[fmt.Sprintf("man/man%d/%s.%d", filesChapter, d.Name, filesChapter)] = []byte(b.document(d, string(text)))
	}
	program := b.Root.Name()
	for path, generate := range map[string]func(io.Writer) error{
		"bash-completion/completions/" + program:         func(w io.Writer) error { return b.Root.GenBashCompletionV2(w, true) },
		"zsh/site-functions/_" + program:                 b.Root.GenZshCompletion,
		"fish/vendor_completions.d/" + program + ".fish": func(w io.Writer) error { return b.Root.GenFishCompletion(w, true) },
	} {
		var text bytes.Buffer
		if err := generate(&text); err != nil {
			return err
		}
		files[path] = text.Bytes()
	}
	for path, text := range files {
		path = filepath.Join(folder, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Date returns the date of the pages: SOURCE_DATE_EPOCH, so that equal sources give equal pages, or
// today.
func Date(getenv func(string) string) string {
	day := time.Now()
	if seconds, err := strconv.ParseInt(getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		day = time.Unix(seconds, 0)
	}
	return day.UTC().Format(time.DateOnly)
}
