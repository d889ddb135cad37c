package sql

import _ "embed" // the statements

// The statements by which a check gathers what it judges: each gives one JSON
// document.
var (
	//go:embed check_server.sql
	CheckServer string
	//go:embed check_role.sql
	CheckRole string
	//go:embed check_table.sql
	CheckTable string
)

// SuggestTable gives, as one JSON document, what a mapping is proposed from.
//
//go:embed suggest_table.sql
var SuggestTable string
