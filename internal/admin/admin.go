// Package admin serves a process's HTTP: /metrics, /healthz, /readyz and
// /api/v1/status, over TLS and for those with credentials only where that is
// configured. It reads states and changes none, and never touches a database or
// a broker. The operator's page is package admin/page, which it serves where it
// is handed one. cmd runs it next to the streams.
package admin

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// Config is what is served.
type Config struct {
	// Listen is the address, host:port.
	Listen string
	// Metrics serves /metrics.
	Metrics http.Handler
	Streams []Stream
	// Version is told by /healthz.
	Version string
	// CertFile and KeyFile (PEM) switch TLS on. They may be replaced while the
	// process runs.
	CertFile, KeyFile string
	// Auth is who may ask for anything but health.
	Auth Auth
	// Hosts are names by which those without credentials may ask, besides
	// addresses, localhost and the machine's own name.
	Hosts []string
	// Refused is told of every login that is refused; it may be nil.
	Refused func()
	Log     zerolog.Logger
	// Page answers everything else; nil: nothing is there.
	Page http.Handler
	// Stopping is called when Run begins to stop, so that long answers end.
	Stopping func()
}

// Stream is one stream.
type Stream struct {
	Name string
	// Status is its replication connection's state.
	Status func() metrics.Status
	// Report is how it stands. Readiness goes by its findings.
	Report func() status.Stream
}

// Bounds of a request: none needs more, and a slow client must not hold a
// connection for long.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	answerTimeout  = 30 * time.Second
	idleTimeout    = 30 * time.Second
	headerBytes    = 16 << 10
	stopTimeout    = 2 * time.Second
)

// Server serves until its Run ends.
type Server struct {
	listener net.Listener
	http     *http.Server
}

// Listen takes the address and reads the certificate, so that a mistake is known
// before anything starts.
func Listen(cfg Config) (*Server, error) {
	var encrypted *tls.Config
	if cfg.CertFile != "" {
		c := &certificate{certFile: cfg.CertFile, keyFile: cfg.KeyFile}
		if _, err := c.get(time.Now()); err != nil {
			return nil, err
		}
		encrypted = &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.get(time.Now()) },
			NextProtos:     []string{"http/1.1"},
		}
	}
	handler, err := Handler(cfg, time.Now)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("serve metrics and health on %s (choose a free address with http.listen, or off): %w", cfg.Listen, err)
	}
	if encrypted != nil {
		l = tls.NewListener(l, encrypted)
	}
	var one http.Protocols // one request at a time on a connection: HTTP/2 takes memory for each of many before it knows who asks
	one.SetHTTP1(true)
	server := &http.Server{
		Handler:           handler,
		ConnState:         newConnections().changed,
		Protocols:         &one,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytes,
	}
	if cfg.Stopping != nil {
		server.RegisterOnShutdown(cfg.Stopping)
	}
	return &Server{listener: l, http: server}, nil
}

// Address is what is listened on, with the port that was chosen for port 0.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Run serves until ctx ends. Requests under way then get a moment to finish.
func (s *Server) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- s.http.Serve(s.listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve metrics and health on %s: %w", s.Address(), err)
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := s.http.Shutdown(bounded); err != nil {
		_ = s.http.Close() // a client that keeps its connection busy
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// refused counts and logs a login. The log's own limit bounds the lines.
func (cfg *Config) refused(r *http.Request, user string) {
	if cfg.Refused != nil {
		cfg.Refused()
	}
	cfg.Log.Warn().Str("remote", r.RemoteAddr).Str("user", user).Str("path", fmt.Sprintf("%.100q", r.URL.Path)).
		Msg("refused wrong credentials over HTTP; after a few from one address the next have to wait")
}

// Handler answers the requests, at the times told by now.
func Handler(cfg Config, now func() time.Time) (http.Handler, error) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", cfg.Metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "ok", "version": cfg.Version})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		readiness(w, r, cfg.Streams, now())
	})
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, r *http.Request) {
		serveStatus(w, r, &cfg, now())
	})
	if cfg.Page != nil {
		mux.Handle("/", cfg.Page)
	} else {
		mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = fmt.Fprintln(w, "outbox-cdc "+cfg.Version+"\n\n/metrics\n/healthz\n/readyz  (one stream: /readyz?stream=NAME)\n/api/v1/status")
		})
	}
	return newGuard(&cfg, mux, now)
}

// Readiness is the body of /readyz.
type Readiness struct {
	Ready   bool              `json:"ready"`
	Streams []StreamReadiness `json:"streams"`
}

// StreamReadiness is one stream's part of it.
type StreamReadiness struct {
	Name   string `json:"name"`
	Ready  bool   `json:"ready"`
	Mode   string `json:"mode"`
	Leader bool   `json:"leader"`
	// Silence is how long ago the last message came, in seconds; left out where
	// there was none.
	Silence *float64 `json:"silence_seconds,omitempty"`
	// Reason says why the stream is not ready.
	Reason string `json:"reason,omitempty"`
}

func readiness(w http.ResponseWriter, r *http.Request, streams []Stream, now time.Time) {
	body := Readiness{Ready: true, Streams: []StreamReadiness{}}
	wanted := r.URL.Query().Get("stream")
	for _, s := range streams {
		if wanted != "" && wanted != s.Name {
			continue
		}
		one := readinessOf(s, now)
		if !details(r) {
			one.Reason = hidden(one.Reason)
		}
		body.Ready = body.Ready && one.Ready
		body.Streams = append(body.Streams, one)
	}
	switch {
	case wanted != "" && len(body.Streams) == 0:
		noStream(w, wanted)
	case !body.Ready:
		answer(w, http.StatusServiceUnavailable, body)
	default:
		answer(w, http.StatusOK, body)
	}
}

// hidden stands for what only those with credentials may see.
func hidden(text string) string {
	if text == "" {
		return ""
	}
	return "ask with credentials of http.auth to see why"
}

func noStream(w http.ResponseWriter, name string) {
	refuse(w, http.StatusNotFound, fmt.Sprintf("there is no stream %q", name))
}

// readinessOf says whether a stream is ready: no finding blocks it. It has been seen to be able to do its work since the
// process started, and now it is the standby of another process, or leads, hears from PostgreSQL, and nothing keeps
// all rows of a Kafka cluster or of a table from being published. Single topics, keys and rows that wait are no reason
// to hold up a rolling update.
func readinessOf(s Stream, now time.Time) StreamReadiness {
	st, report := s.Status(), s.Report()
	out := StreamReadiness{Name: s.Name, Ready: true, Mode: report.Mode, Leader: st.Leader}
	if !st.Heard.IsZero() {
		out.Silence = new(now.Sub(st.Heard).Seconds())
	}
	for i := range report.Findings {
		if f := &report.Findings[i]; f.Blocks && out.Ready {
			out.Ready, out.Reason = false, f.Text
		}
	}
	return out
}

// serveStatus answers GET /api/v1/status, of one stream with ?stream=NAME.
func serveStatus(w http.ResponseWriter, r *http.Request, cfg *Config, now time.Time) {
	body := status.Report{At: now.UTC(), Version: cfg.Version, Process: r.Host, Streams: []status.Stream{}}
	wanted := r.URL.Query().Get("stream")
	for _, s := range cfg.Streams {
		if wanted == "" || wanted == s.Name {
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
	s.Findings = slices.Clone(s.Findings)
	for i := range s.Findings {
		s.Findings[i].Text, s.Findings[i].Hint = hidden(s.Findings[i].Text), ""
	}
	s.Parks.Top, s.Standbys = nil, nil
	s.Kafka = slices.Clone(s.Kafka)
	for i := range s.Kafka {
		s.Kafka[i].Error = hidden(s.Kafka[i].Error)
	}
	s.Tables = slices.Clone(s.Tables)
	for i := range s.Tables {
		s.Tables[i].Error = hidden(s.Tables[i].Error)
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(body) // the client went away
}
