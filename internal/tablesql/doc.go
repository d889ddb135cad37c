// Package tablesql builds the SQL that reads and writes the rows of an outbox
// table as its mapping says, and runs it on a given connection: what the status
// updater and the sweeper both need is written here once. Identifiers are
// quoted, values are bound; only the status values of the configuration stand
// in the text, quoted, because a partial index serves no bound value.
//
// It decides nothing about rows, opens no connection and never retries.
//
// # Files
//
//	relation, relation_cache    the table as the catalogue has it, and when it is read again
//	mark, archive, writes       what writes an outcome; all that may ever be written, for check
//	look, contents              the state of given rows, and what they are now
//	page, scope, due            pages of pending rows: of which scopes, when they are due
//	side_headers                headers that another table holds
//	operate, recover            what operators do to rows; rows that a crashed relay left behind
//	retention                   old rows and partitions
//	counts, check               how many rows wait or have failed
//	selected                    the columns that a row is made of, as they are selected and read
//	predicate, value            the SQL of states, and of names and conditions that are mapped
//	stored                      a column's text, in the encoding that the database stores
//	times, json, long           columns of times; documents; values that may be too long
//	params, array               bound values
//	exec, pin, settings, fault  runs statements: locks before the snapshot, timeouts, what an error means
package tablesql
