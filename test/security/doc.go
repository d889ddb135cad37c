// Package security attacks the program as its strangers could: writers of rows,
// other users of the database, of the topics and of the network. Each test
// performs one attack on real servers, next to people who do nothing wrong, and
// expects that these notice nothing. docs/security.md says what is promised to
// whom.
package security
