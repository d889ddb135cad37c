package postgres

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgproto3"
)

func encoded(t *testing.T, messages ...pgproto3.BackendMessage) (b []byte) {
	t.Helper()
	for _, m := range messages {
		var err error
		if b, err = m.Encode(b); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// hesitant reads in pieces of any size, with timeouts between them.
type hesitant struct {
	io.Reader
	rand *rand.Rand
}

func (h hesitant) Read(p []byte) (int, error) {
	if h.rand.IntN(3) == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	return h.Reader.Read(p[:1+h.rand.IntN(len(p))])
}

// Reports are as they were, or shortened text by text; everything else is as it was, however it
// comes in.
func TestLongReportsAreShortened(t *testing.T) {
	long := strings.Repeat("é", 100<<10)
	row := &pgproto3.DataRow{Values: [][]byte{[]byte(long), nil}}
	sent := encoded(t,
		&pgproto3.ErrorResponse{Severity: "ERROR", Code: "P0001", Message: "short", Detail: strings.Repeat("d", 8<<10)}, row,
		&pgproto3.ErrorResponse{Severity: "ERROR", Code: "P0001", Message: "x" + long, Detail: "after", Hint: long}, row,
		&pgproto3.NoticeResponse{Severity: "NOTICE", Code: "00000", Message: long}, &pgproto3.ParameterStatus{Name: "search_path", Value: long}, row, &pgproto3.ReadyForQuery{TxStatus: 'I'})
	const half = briefText / 2
	cut := strings.Repeat("é", half) + "…"
	first, hint := "x"+strings.Repeat("é", half-1)+"…", strings.Repeat("é", half-1)+"…"
	for seed := range uint64(200) {
		f := pgproto3.NewFrontend(newBrief(hesitant{bytes.NewReader(sent), rand.New(rand.NewPCG(seed, 0))}), io.Discard)
		var got []pgproto3.BackendMessage
		for len(got) < 8 {
			m, err := f.Receive()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				continue
			}
			if err != nil {
				t.Fatal(seed, err)
			}
			switch m := m.(type) {
			case *pgproto3.ErrorResponse:
				e := *m
				switch len(got) {
				case 0:
					if e.Message != "short" || len(e.Detail) != 8<<10 {
						t.Fatal(seed, e.Message, len(e.Detail))
					}
				default:
					if e.Code != "P0001" || e.Message != first || e.Detail != "after" || e.Hint != hint || !utf8.ValidString(e.Message) {
						t.Fatal(seed, e.Code, len(e.Message), len(e.Hint), e.Detail)
					}
				}
			case *pgproto3.NoticeResponse:
				if m.Message != hint {
					t.Fatal(seed, len(m.Message))
				}
			case *pgproto3.ParameterStatus:
				if m.Name != "search_path" || m.Value != cut {
					t.Fatal(seed, m.Name, len(m.Value))
				}
			case *pgproto3.DataRow:
				if string(m.Values[0]) != long {
					t.Fatal(seed, "a row is not as it was")
				}
			}
			got = append(got, m)
		}
	}
}

// A report without an end, or of nothing but ends, takes no memory.
func TestAReportWithoutEndIsBounded(t *testing.T) {
	for _, c := range []byte{0, 'M'} {
		b := newBrief(io.MultiReader(bytes.NewReader(binary.BigEndian.AppendUint32([]byte{'E'}, 64<<20)), io.LimitReader(same(c), 32<<20)))
		for err := error(nil); err == nil; {
			_, err = b.Read(make([]byte, 10))
		}
		if b.long == nil || cap(b.long.kept) > 4*longReport {
			t.Errorf("%+v", b.long)
		}
	}
}

type same byte

func (s same) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(s)
	}
	return len(p), nil
}
