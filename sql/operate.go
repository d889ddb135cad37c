package sql

import _ "embed" // the statements

// The statements of the operator's commands.
var (
	//go:embed slots_list.sql
	SlotsList string
	//go:embed slots_leaders.sql
	SlotsLeaders string
	//go:embed leader_read.sql
	LeaderRead string
)
