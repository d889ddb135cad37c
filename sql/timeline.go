package sql

import _ "embed" // the statement

// Timeline is asked on every new connection while a stream leads.
//
//go:embed timeline.sql
var Timeline string
