// Package notebooks starts Jupyter's own kernel as docs/notebooks.md has it.
package notebooks
