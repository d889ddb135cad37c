package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/admin/page"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
)

// newPage hands the operator's page what it shows.
func newPage(cfg *config.Config, p *prepared, version string, log zerolog.Logger) (*page.Page, error) {
	shown := page.Config{
		Version: version, ShowPayloads: cfg.HTTP.ShowPayloads, MayAct: admin.MayAct, Who: admin.NameOf, Log: log,
		Slots: func(ctx context.Context) ([]page.Server, error) { return pageSlots(ctx, cfg), nil },
	}
	for i, s := range cfg.Streams {
		text, err := cfg.InForce(s)
		if err != nil {
			return nil, err
		}
		shown.Streams = append(shown.Streams, page.Stream{
			Name: s.Name, Report: p.streams[i].Status, Activity: p.streams[i].Activity, Tables: s.OutboxTables(),
			Database:      fmt.Sprintf("%s@%s/%s", s.Postgres.User, serverOf(s), s.Postgres.Database),
			Configuration: text,
			Found:         func(t *outbox.Table) time.Duration { return s.WatchInterval + t.Mapping.Grace },
			Changed:       p.streams[i].Recount,
			Connect: func(ctx context.Context) (*pgx.Conn, error) {
				return connectRole(ctx, s, marker(s, operatorName))
			},
		})
	}
	return page.New(shown)
}

// pageSlots looks at every server; what went wrong with one stands next to it.
func pageSlots(ctx context.Context, cfg *config.Config) []page.Server {
	asItself := func(a postgres.Access) postgres.Access { return a } // a page is nobody's administrator
	var all []page.Server
	for _, server := range serversOf(cfg, cfg.Streams) {
		var notes bytes.Buffer
		one := page.Server{Server: server.Server}
		if err := server.look(ctx, asItself, streams{out: io.Discard, err: &notes}); err != nil {
			fmt.Fprintln(&notes, err)
		}
		one.Slots, one.Error = server.Slots, strings.TrimSpace(notes.String())
		all = append(all, one)
	}
	return all
}
