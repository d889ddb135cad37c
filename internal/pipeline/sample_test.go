package pipeline

import (
	"errors"
	"slices"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

func TestDifferenceNamesWhatChanged(t *testing.T) {
	row := func(change func(r *outbox.Row)) *outbox.Row {
		r := &outbox.Row{Cluster: "c", Topic: "t", Key: []byte("k"), Value: []byte{}, Headers: []outbox.Header{{Name: "h"}}, Partition: -1, Timestamp: 1}
		change(r)
		return r
	}
	for name, x := range map[string]struct {
		change func(r *outbox.Row)
		want   []string
	}{
		"nothing": {func(r *outbox.Row) { r.ID, r.XID, r.Commit, r.Aged = "1", 2, 3, true }, nil},
		"all": {func(r *outbox.Row) {
			r.Cluster, r.Topic, r.Key, r.Value, r.Partition, r.Timestamp = "", "", nil, []byte("v"), 0, 0
		}, []string{"cluster", "topic", "key", "payload", "partition", "timestamp"}},
		"tombstone":  {func(r *outbox.Row) { r.Value = nil }, []string{"payload"}},
		"header":     {func(r *outbox.Row) { r.Headers[0].Value = []byte{} }, []string{"headers"}},
		"no headers": {func(r *outbox.Row) { r.Headers = nil }, []string{"headers"}},
		"no record":  {func(r *outbox.Row) { r.Err, r.Value = errors.New("bad"), []byte("v") }, nil},
	} {
		if got := difference(row(func(*outbox.Row) {}), row(x.change)); !slices.Equal(got, x.want) {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
}
