// Package admin serves a process's HTTP: /metrics, /healthz, /readyz and /api/v1/status. TLS and credentials
// are required only where they are configured. The package reads states and changes none, and never uses a
// database or a broker. The operator's page is in package admin/page, which this package serves if it is
// given a page. cmd runs it next to the streams.
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

// Config says what is served, and to whom.
type Config struct {
	// Listen is the address, host:port.
	Listen string
	// Metrics serves /metrics.
	Metrics http.Handler
	Streams []Stream
	// Version is shown by /healthz.
	Version string
	// CertFile and KeyFile (PEM) switch TLS on. The files may be replaced while the process runs.
	CertFile, KeyFile string
	// Auth says who may request what. Health is for everybody.
	Auth Auth
	// Hosts are further host names under which clients without credentials may send requests. IP addresses,
	// localhost and the machine's own name are always allowed.
	Hosts []string
	// Refused is called for every login that is refused; it may be nil.
	Refused func()
	Log     zerolog.Logger
	// Page answers all other requests; nil: they are not found.
	Page http.Handler
	// Stopping is called when Run begins to stop, so that long responses end.
	Stopping func()
}

// Stream gives access to the state of one stream.
type Stream struct {
	Name string
	// Status returns the state of the stream's replication connection.
	Status func() metrics.Status
	// Report returns the stream's status. Its findings decide readiness.
	Report func() status.Stream
}

// Bounds of a request. No request needs more, and a slow client must not keep a connection for long.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	answerTimeout  = 30 * time.Second
	idleTimeout    = 30 * time.Second
	headerBytes    = 16 << 10
	stopTimeout    = 2 * time.Second
)

// Server serves until Run returns.
type Server struct {
	listener net.Listener
	http     *http.Server
}

// Listen opens the address and reads the certificate, so that a mistake is found before anything starts.
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
	var one http.Protocols // one request at a time on a connection: HTTP/2 allocates memory for many requests before it knows the client
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

// Address returns the address that the server listens on, with the real port if the configured one is 0.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Run serves until ctx ends. Requests in progress then get a moment to finish.
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
		_ = s.http.Close() // closes the connections of clients that are still busy
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// refused counts and logs a refused login. The log's own limit bounds the number of lines.
func (cfg *Config) refused(r *http.Request, user string) {
	if cfg.Refused != nil {
		cfg.Refused()
	}
	cfg.Log.Warn().Str("remote", r.RemoteAddr).Str("user", user).Str("path", fmt.Sprintf("%.100q", r.URL.Path)).
		Msg("refused wrong credentials over HTTP; after a few from one address the next have to wait")
}

// Handler returns the handler of all requests. now is its clock.
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

// StreamReadiness is the part of Readiness about one stream.
type StreamReadiness struct {
	Name   string `json:"name"`
	Ready  bool   `json:"ready"`
	Mode   string `json:"mode"`
	Leader bool   `json:"leader"`
	// Silence is how long ago the last message came on the replication connection, in seconds. It is left out
	// if none came yet.
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

// hidden returns what clients without credentials see in place of a text.
func hidden(text string) string {
	if text == "" {
		return ""
	}
	return "ask with credentials of http.auth to see why"
}

func noStream(w http.ResponseWriter, name string) {
	refuse(w, http.StatusNotFound, fmt.Sprintf("there is no stream %q", name))
}

// readinessOf reports whether a stream is ready, which means that no finding blocks it. The stream has been
// seen able to work since the process started. And now it is a standby of another process, or it leads, hears
// from PostgreSQL, and can publish the rows of every Kafka cluster and every table. Single topics, keys and
// rows that wait are no reason to hold up a rolling update.
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

// serveStatus answers GET /api/v1/status. ?stream=NAME restricts it to one stream.
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

// withoutDetails keeps counts and states, and removes texts that name keys, topics, roles and hosts.
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
	_ = e.Encode(body) // fails only if the client has gone away
}
