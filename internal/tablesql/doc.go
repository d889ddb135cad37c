// Package tablesql builds the SQL that reads and writes the rows of an outbox table according to its mapping, and
// runs it on a given connection. It has the SQL that the status updater and the sweeper share. Identifiers are
// quoted and values are bound. Only status values of the configuration are part of the text, as quoted literals,
// because a partial index cannot serve a bound value.
//
// The package does not decide about rows, opens no connection and does not retry.
//
// # Files
//
//	relation, relation_cache    the table as the catalogue has it, and when it is read again
//	mark, archive, writes       statements that write an outcome; all possible writes, for check
//	look, contents              the state of given rows, and their present values
//	page, scope, due            pages of pending rows: of which scopes, when they are due
//	side_headers                headers in another table
//	operate, recover            what operators do to rows; rows that a crashed relay left behind
//	retention                   old rows and partitions
//	counts, check               how many rows wait or have failed
//	selected                    the columns that a row is made of, as they are selected and read
//	predicate, value            the SQL of states, and of names and conditions that are mapped
//	stored                      a column's text, in the encoding that the database stores
//	times, json, long           columns of times; documents; values that may be too long
//	params, array               bound values
//	exec, pin, settings, fault  runs statements: locks before the snapshot, timeouts, the meaning of errors
package tablesql
