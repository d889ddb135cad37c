package preflight

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
)

// RowFilter is a publication that passes only a part of a table's rows.
type RowFilter struct {
	Publication string `json:"publication"`
	Where       string `json:"where"`
}

// judgeShare compares the row filters of all publications of the database with the parts that must exist.
func judgeShare(j *judgment) {
	if claimed, ok := errors.AsType[*postgres.Error](j.Claimed); ok {
		j.fail("", claimed.Err.Error(), claimed.Hint)
	}
	eachDetailed(judgeParts)(j)
}

func judgeParts(j *judgment, name string, t *TableFacts, d *Details) {
	splits := slices.DeleteFunc(slices.Clone(d.RowFilters), func(f RowFilter) bool { return !strings.Contains(f.Where, "hash_array(ARRAY[") })
	table := t.Table.Table
	if table.Share.Of == 0 {
		if len(splits) > 0 {
			j.warn(name, "the stream takes every row, but a part of the table is published by "+published(splits)+" as well",
				"if that stream is no more: DROP PUBLICATION; otherwise give this one a share")
		}
		j.otherwise(name, "the stream takes every row")
		return
	}
	for part := 1; part <= table.Share.Of; part++ {
		other := *table
		other.Share.Part = part
		passes := func(f RowFilter) bool { return outbox.HasFilter(f.Where, other.Filter("")) }
		of := slices.DeleteFunc(slices.Clone(splits), func(f RowFilter) bool { return !passes(f) })
		splits = slices.DeleteFunc(splits, passes)
		switch {
		case len(of) == 0:
			j.warn(name, fmt.Sprintf("no publication passes %s", other.Share), "configure a stream for it and run outbox-cdc init")
		case len(of) > 1:
			j.warn(name, fmt.Sprintf("%s is published by %s", other.Share, published(of)), "let one stream have it, and drop the publication of the other")
		}
	}
	if len(splits) > 0 {
		j.warn(name, "the table is split in another way by "+published(splits), "give all its streams the same of and the same key column, and drop what is left of a former split")
	}
	j.otherwise(name, "%s; each of the others has a publication", table.Share)
}

func published(filters []RowFilter) string {
	texts := make([]string, len(filters))
	for i, f := range filters {
		texts[i] = fmt.Sprintf("publication %s (WHERE %s)", f.Publication, f.Where)
	}
	return strings.Join(texts, ", ")
}
