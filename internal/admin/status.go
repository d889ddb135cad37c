package admin

import (
	"net/http"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// serveStatus answers GET /api/v1/status, of one stream with ?stream=NAME.
func serveStatus(w http.ResponseWriter, r *http.Request, cfg *Config, now time.Time) {
	body := status.Report{At: now.UTC(), Version: cfg.Version, Process: r.Host, Streams: []status.Stream{}}
	wanted := r.URL.Query().Get("stream")
	for _, s := range cfg.Streams {
		if s.Report != nil && (wanted == "" || wanted == s.Name) {
			one := s.Report()
			if !details(r) {
				withoutDetails(&one)
			}
			body.Streams = append(body.Streams, one)
		}
	}
	if wanted != "" && len(body.Streams) == 0 {
		noStream(w, wanted)
		return
	}
	answer(w, http.StatusOK, body)
}

// withoutDetails leaves counts and states, and takes out what names keys, topics,
// roles and hosts.
func withoutDetails(s *status.Stream) {
	s.Reason, s.Error = hidden(s.Reason), hidden(s.Error)
	s.Parks.Top = nil
	s.Kafka = slices.Clone(s.Kafka)
	for i := range s.Kafka {
		s.Kafka[i].Error = hidden(s.Kafka[i].Error)
	}
	s.Tables = slices.Clone(s.Tables)
	for i := range s.Tables {
		s.Tables[i].Error = hidden(s.Tables[i].Error)
	}
}
