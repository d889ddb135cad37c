package config

import _ "embed" // for the schema

// JSONSchema is the JSON Schema (draft 2020-12) of a configuration file, for editors. It describes the keys
// and the bounds of single values; Load checks more. A test generates it.
//
//go:embed schema.json
var JSONSchema []byte
