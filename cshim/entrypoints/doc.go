// Package entrypoints compares the shim's table of entry points (hooks.def) with the vendor's
// drivers. It has an inventory of their functions, and maps of how three real drivers resolve
// names.
//
// testdata/inventory.tsv has a line for each function. Its columns are: symbol; name that programs
// ask for; class; measured drivers that export it; what it acquires; why it is not wrapped;
// prototype. The reasons are in inventory_test.go. After "charged" comes the row that charges the
// bytes which this function passes on or maps.
//
// testdata/resolve-N.tsv has the answers of cuGetProcAddress in driver N: name, flags, and
// "version:symbol" for each version at which the answer changes. "version:!rR,stS" is a return code
// and a status without a function. resolve-13.tsv has published facts about drivers that were not
// measured, where they differ from driver 555.
//
// The main types are function, a line of the inventory, and table, the content of hooks.def. The
// package has only tests, which change neither the inventory nor the maps, and needs no lock. It
// starts no daemon, and does not test what a wrapped function charges.
package entrypoints
