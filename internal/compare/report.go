package compare

import "time"

// Report is what a comparison found.
type Report struct {
	// Stream that was compared.
	Stream string `json:"stream"`
	// Since is when the first rows were taken.
	Since time.Time `json:"since"`
	// Until is when the last rows were taken.
	Until time.Time `json:"until"`
	// Rows that came from the WAL.
	Rows int `json:"rows"`
	// Records that were found in the topics.
	Records int `json:"records"`
	// Same is how many of each are equal.
	Same int `json:"same"`
	// Differences of all kinds that are one.
	Differences int `json:"differences"`
	// Kinds are what was found, the worst first.
	Kinds []KindFind `json:"kinds"`
}

// KindFind is what was found of one kind.
type KindFind struct {
	// Kind is `missing`, `extra`, `topic`, `key`, `value`, `headers`, `partition`, `repeated`,
	// `refused`, `waiting` or `before`.
	Kind Kind `json:"kind"`
	// Difference is false for `waiting` and `before`.
	Difference bool `json:"difference"`
	// Means says what the kind is.
	Means string `json:"means"`
	// Count is how many there are.
	Count int `json:"count"`
	// Examples are the first ones, at most `--examples`.
	Examples []Example `json:"examples"`
}
