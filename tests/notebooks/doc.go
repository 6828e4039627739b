// Package notebooks starts Jupyter's own kernel, and a JupyterHub, as docs/admin/notebooks.md has them.
package notebooks
