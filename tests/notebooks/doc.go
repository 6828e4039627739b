// Package notebooks starts Jupyter's own kernel, and a JupyterHub, as docs/notebooks.md has them.
package notebooks
