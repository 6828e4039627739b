// Package doctor looks at a machine, and says what is wrong with it and what to do: drivers, library, socket, mount, and who uses
// a GPU outside of gpuarb. How the daemon is asked, and how findings are shown, is the command's.
package doctor
