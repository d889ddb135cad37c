package compare

import "time"

// Report is what a comparison found. Its JSON is documented in docs/commands.md.
type Report struct {
	Stream string    `json:"stream"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	// Rows came through the WAL, Records out of the topics; Same of each are equal.
	Rows    int `json:"rows"`
	Records int `json:"records"`
	Same    int `json:"same"`
	// Differences counts all kinds that are one.
	Differences int        `json:"differences"`
	Kinds       []KindFind `json:"kinds"`
}

// KindFind is what was found of one kind.
type KindFind struct {
	Kind       Kind      `json:"kind"`
	Difference bool      `json:"difference"`
	Means      string    `json:"means"`
	Count      int       `json:"count"`
	Examples   []Example `json:"examples"`
}

func (c *Comparison) report() *Report {
	r := &Report{Rows: c.rows, Records: c.records, Same: c.same, Kinds: []KindFind{}}
	for _, k := range kinds {
		n := c.counts[k.kind]
		if n == 0 {
			continue
		}
		if k.difference {
			r.Differences += n
		}
		r.Kinds = append(r.Kinds, KindFind{k.kind, k.difference, k.means, n, c.results[k.kind]})
	}
	return r
}
