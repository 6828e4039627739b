# SPDX-License-Identifier: Apache-2.0
#
# data/resolve-555.tsv (name, flags, then firstVersion:symbol or firstVersion:!rN,stM) to a C table.
BEGIN {
    FS = "\t"
    print "// Generated from data/resolve-555.tsv by gen/resolve.awk."
    print "#include \"resolve.h\"\n"
}
{
    row = "    {\"" $1 "\", " $2 ", " NF - 2 ", {"
    for (i = 3; i <= NF; i++) {
        colon = index($i, ":")
        version = substr($i, 1, colon - 1)
        what = substr($i, colon + 1)
        if (what ~ /^!r0,st[0-9]+$/) {
            sub(/^!r0,st/, "", what)
            row = row "{" version ", 0, " what "}, "
        } else if (what ~ /^cu[A-Za-z0-9_]+$/) {
            seen[what] = 1
            row = row "{" version ", (void *)" what ", 0}, "
        } else {
            print "line " NR ": cannot read " $i > "/dev/stderr"
            exit 1
        }
    }
    rows[NR] = row "}},"
}
END {
    for (s in seen)
        print "extern int " s "(void);" | "LC_ALL=C sort"
    close("LC_ALL=C sort")
    print "\nconst struct resolve_row resolve_table[] = {"
    for (i = 1; i <= NR; i++)
        print rows[i]
    print "};\nconst unsigned resolve_rows = sizeof resolve_table / sizeof resolve_table[0];"
}
