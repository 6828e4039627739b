package main

// This file writes the document in the format of SPDX 2.3, https://spdx.github.io/spdx-spec/v2.3. main.go fills it in.

import (
	"fmt"
	"regexp"
	"time"
)

type (
	spdxDocument struct {
		Version       string         `json:"spdxVersion"`
		DataLicence   string         `json:"dataLicense"`
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		Creation      spdxCreation   `json:"creationInfo"`
		Packages      []spdxPackage  `json:"packages"`
		Files         []spdxFile     `json:"files"`
		Relationships []spdxRelation `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		Name       string          `json:"name"`
		ID         string          `json:"SPDXID"`
		Version    string          `json:"versionInfo"`
		Location   string          `json:"downloadLocation"`
		Analyzed   bool            `json:"filesAnalyzed"`
		Declared   string          `json:"licenseDeclared"`
		Concluded  string          `json:"licenseConcluded"`
		Copyright  string          `json:"copyrightText"`
		References []spdxReference `json:"externalRefs,omitempty"`
	}
	spdxReference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxFile struct {
		Name      string         `json:"fileName"`
		ID        string         `json:"SPDXID"`
		Sums      []spdxChecksum `json:"checksums"`
		Types     []string       `json:"fileTypes"`
		Concluded string         `json:"licenseConcluded"`
		Copyright string         `json:"copyrightText"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxRelation struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const (
	unasserted = "NOASSERTION"
	apache     = "Apache-2.0"
	rootID     = "SPDXRef-gpuarb"
)

// notInID matches runs of characters that SPDX does not allow in identifiers.
var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func identifier(kind, name string) string {
	return "SPDXRef-" + kind + "-" + notInID.ReplaceAllString(name, "-")
}

// document describes a package: it with its programs as files, and one package for each part.
func document(name, version string, at time.Time, programs []program, parts []part) spdxDocument {
	d := spdxDocument{
		Version: "SPDX-2.3", DataLicence: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name + "-" + version,
		Namespace: fmt.Sprintf("https://gpuarb.dev/spdx/%s-%s-%d", name, version, at.Unix()),
		Creation:  spdxCreation{at.Format(time.RFC3339), []string{"Tool: gpuarb-sbom-" + version}},
		Packages: []spdxPackage{{
			Name: name, ID: rootID, Version: version, Location: unasserted,
			Declared: apache, Concluded: apache, Copyright: unasserted,
		}},
		Relationships: []spdxRelation{{"SPDXRef-DOCUMENT", "DESCRIBES", rootID}},
	}
	for _, p := range parts {
		d.Packages = append(d.Packages, spdxPackage{
			Name: p.name, ID: identifier("part", p.name), Version: p.version, Location: unasserted,
			Declared: p.licence.id, Concluded: p.licence.id, Copyright: unasserted,
			References: []spdxReference{{"PACKAGE-MANAGER", "purl", p.locator()}},
		})
	}
	for _, p := range programs {
		id := identifier("file", p.name)
		d.Files = append(d.Files, spdxFile{
			Name: "./" + p.name, ID: id, Types: []string{"BINARY"}, Concluded: apache, Copyright: unasserted,
			Sums: []spdxChecksum{{"SHA1", p.sha1}, {"SHA256", p.sha256}},
		})
		d.Relationships = append(d.Relationships, spdxRelation{rootID, "CONTAINS", id})
		for _, name := range p.parts {
			d.Relationships = append(d.Relationships, spdxRelation{id, "STATIC_LINK", identifier("part", name)})
		}
	}
	return d
}

// locator returns the part's package URL.
func (p part) locator() string {
	if p.name == cLibrary {
		return "pkg:generic/" + p.name + "@" + p.version
	}
	return "pkg:golang/" + p.name + "@" + p.version
}
