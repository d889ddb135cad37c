package page

import (
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/rs/zerolog"

	operators "github.com/outbox-cdc/outbox-cdc/internal/admin/page"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
)

// situation is a stream as it stands and what its process remembers.
type situation struct {
	status   status.Stream
	activity status.Activity
}

// working is a stream with nothing wrong, and half an hour of history with a gap.
func working(name string) situation {
	pending, failed, safe, lag, growth := int64(12), int64(0), int64(40<<30), 0.2, 1000.0
	x := situation{status: status.Stream{
		Name: name, Source: status.FromProcess, Mode: status.ModeStream,
		Leader:   &status.Leader{Name: "outbox-cdc/" + name + "@orders-7c9f8d-x2x7k", Address: "10.0.3.17", Epoch: 12, Since: "2030-01-01T08:12:44Z", Here: true},
		Standbys: []status.Standby{{Name: "outbox-cdc/" + name + "@orders-7c9f8d-p9w4z", Address: "10.0.4.9", Since: "2030-01-01T08:13:02Z"}},
		Slot: &status.Slot{
			Name: "outbox_cdc_" + name, Exists: true, Active: true, WALStatus: "reserved", Retained: 600 << 20, Budget: 8 << 30, Safe: &safe, Lag: 90 << 10, LagSeconds: &lag, At: fixture.Noon, Growth: &growth, GrowthOver: 300,
		},
		Tables: []status.Table{
			{Name: "public.outbox", Pending: &pending, Failed: &failed, Oldest: 0.4, CountedAt: fixture.Noon, FailedAt: fixture.Noon},
			{Name: "payments_and_settlements.outbox_events_of_the_year", Pending: &failed, Failed: &failed, CountedAt: fixture.Noon, FailedAt: fixture.Noon},
		},
		Kafka: []status.Cluster{{Name: "main", Usable: true, Fencing: "on", Since: fixture.Noon.Add(-time.Hour)}},
		Flow:  &status.Flow{Published: 1_234_567, PerSecond: 815, InFlight: 312},
	}}
	x.activity.Topics = []status.Topic{{Cluster: "main", Topic: "orders.created.v2", Published: 934_567, Bytes: 3 << 30}, {Cluster: "main", Topic: "payments", Published: 300_000, Bytes: 1 << 30}}
	for i := range 180 {
		at := fixture.Noon.Add(time.Duration(i-180) * 10 * time.Second)
		if i >= 100 && i < 112 && i != 106 { // a single sample in a gap
			continue
		}
		wave := 800 + 300*math.Sin(float64(i)/9)
		x.activity.History = append(x.activity.History, status.Point{At: at, PerSecond: wave, Retained: uint64(300+3*i) << 20, P50: 0.004, P99: 0.02 + 0.2*math.Abs(math.Sin(float64(i)/30))})
	}
	x.activity.Rates = status.Rates{WAL: 2.5e6, Published: 815, Sent: 812}
	x.activity.Positions = &status.Positions{Server: "16/B374D848", Confirmed: "16/B374A010", Restart: "16/8E000028"}
	x.activity.Events = []status.Event{{At: fixture.Noon.Add(-time.Hour), Kind: "leader", Text: "this process leads, as outbox-cdc/" + name + "@orders-7c9f8d-x2x7k (epoch 12)"}}
	return x
}

func (x *situation) park(g status.ParkGroup) {
	g.Since = fixture.Noon.Add(-7 * time.Minute)
	x.status.Parks.Total += g.Count
	x.status.Parks.Top = append(x.status.Parks.Top, g)
	x.activity.Parks = append(x.activity.Parks, status.Park{Kind: g.Kind, Scope: g.Example, Cause: g.Cause, Reason: g.Reason, Since: g.Since, Next: fixture.Noon.Add(20 * time.Second)})
}

// situations are six ways in which a stream can stand.
func situations() map[string]situation {
	well, outage, stuck := working("orders"), working("orders"), working("orders")
	const refused = "dial tcp 10.0.9.3:9092: connect: connection refused"
	outage.status.Mode = status.ModeHold
	outage.status.Kafka[0] = status.Cluster{Name: "main", Error: refused, Since: fixture.Noon.Add(-4 * time.Minute)}
	outage.activity.Errors = []status.ErrorGroup{{About: "Kafka cluster main", Text: refused, Count: 41, First: fixture.Noon.Add(-4 * time.Minute), Last: fixture.Noon}}
	outage.activity.Rates.Published, outage.activity.Rates.Sent = 0, 0
	many := int64(1500)
	stuck.status.Tables[0].Failed, stuck.status.Tables[0].FailedCapped, stuck.status.Tables[0].Oldest = &many, true, 700
	stuck.park(status.ParkGroup{Kind: "table", Cause: "mapping", Reason: `column "payload" is missing: it was renamed or dropped`, Count: 1, Example: "table public.outbox"})
	stuck.park(status.ParkGroup{Kind: "key", Cause: "blocked", Reason: "row 4711 is FAILED: Message was too large", Count: 17, Example: `key "customer-00000042" of topic orders.created.v2 in table public.outbox`})
	paused := working("orders")
	paused.status.Mode, paused.status.Reason = status.ModePaused, "paused by ann@laptop"
	paused.status.Flow.InFlight, paused.activity.Rates.Published, paused.activity.Rates.Sent = 0, 0, 0
	paused.park(status.ParkGroup{Kind: "stream", Cause: "paused", Reason: "paused by ann@laptop", Count: 1, Example: "stream"})
	away := working("orders")
	away.status.Mode, away.status.Unreachable, away.status.Leader, away.status.Standbys = status.ModeUnknown, true, nil, nil
	away.status.Error, away.status.ErrorSince = "connect to cdc@db.internal:5432/orders: password authentication failed for user \"cdc\"", fixture.Noon.Add(-3*time.Minute)
	away.activity.Errors = []status.ErrorGroup{{About: "the stream", Text: away.status.Error, Count: 19, First: away.status.ErrorSince, Last: fixture.Noon}}
	away.status.Flow.InFlight, away.activity.Rates.Published, away.activity.Rates.Sent = 0, 0, 0
	away.status.Slot.At, away.status.Tables[0].CountedAt = fixture.Noon.Add(-3*time.Minute), fixture.Noon.Add(-4*time.Minute)
	standby := situation{status: status.Stream{
		Name: "orders", Source: status.FromProcess, Mode: status.ModeStandby, Tables: []status.Table{{Name: "public.outbox"}},
		Leader: &status.Leader{Name: "outbox-cdc/orders@orders-7c9f8d-x2x7k", Address: "10.0.3.17", Since: "2030-01-01T08:12:44Z"},
	}}
	return map[string]situation{"well": well, "outage": outage, "stuck": stuck, "paused": paused, "unreachable": away, "standby": standby}
}

// Six situations are looked at on a screen and a phone, light and dark: make page-pictures.
func TestSituations(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	b := start(t)
	for name, x := range situations() {
		status.Judge(&x.status)
		one := operators.Stream{
			Name: "orders", Report: func() status.Stream { return x.status }, Activity: func() status.Activity { return x.activity },
			Database: "cdc@db.internal:5432/orders", Configuration: "name: orders\n", Pauses: &operators.Pauses{},
		}
		shown, err := operators.New(operators.Config{
			Version: "1.0.0", Log: zerolog.Nop(), Now: func() time.Time { return fixture.Noon }, Streams: []operators.Stream{one},
			MayAct: func(*http.Request) bool { return true },
		})
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(shown)
		pages, looks := map[string]string{"stream": "/streams/orders"}, []look{screen, darkPhone} // which has what the overview has
		if os.Getenv("OUTBOX_TEST_LONG") != "" {
			pages["overview"], looks = "/", []look{screen, dark, phone, darkPhone}
		}
		for page, path := range pages {
			b.open(server.URL + path)
			b.await("section.lane .mode", x.status.ModeText)
			b.shoot("situation-"+name+"-"+page, looks...)
		}
		b.open("about:blank")
		shown.Close()
		server.Close()
	}
}
