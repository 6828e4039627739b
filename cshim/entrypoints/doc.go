// Package entrypoints holds the shim's table of entry points (hooks.def)
// against what the vendor's drivers have: an inventory of their functions, and the
// maps by which three real drivers resolve names.
//
// testdata/inventory.tsv lists every function: symbol, the name that programs ask
// for, class, the measured drivers that export it, what it acquires, why it is not
// wrapped (the reasons are in inventory_test.go; "charged" names the row that charges
// what this one hands on, maps or brings about), prototype.
// testdata/resolve-N.tsv is what cuGetProcAddress of driver N answers: name, flags,
// then "version:symbol" for each version from which on the answer is another, or
// "version:!rR,stS" for a return code and a status without a function. resolve-13.tsv has what is
// published of drivers that nobody has measured, where it is other than 555's answers.
package entrypoints
