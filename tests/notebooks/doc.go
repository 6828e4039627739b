// Package notebooks starts Jupyter's own kernel, and a JupyterHub, as docs/admin/notebooks.md describes them. The oracle is the
// page: each notebook's process must appear as a job with the limits that the page promises.
package notebooks
