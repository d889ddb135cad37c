-- from: davidterranova/cqrs pg/migrations/000002_events_outbox.up.sql (refers to events)
-- want: refused
CREATE TABLE events_outbox (
    event_id UUID PRIMARY KEY,
    published BOOLEAN NOT NULL DEFAULT FALSE,
    aggregate_version INT NOT NULL);
