-- from: stored public code, index 62001996018: event_outbox of imports (status stored public code, index in ('pending', 'failed'))
-- want: topic=? key=aggregate_id column=status pending=pending sent=?sent sent_at=sent_at attempts=retry_count error=last_error due=next_retry_at created=created_at
CREATE TABLE event_outbox (
    id text primary key,
    aggregate_id text not null,
    event_type text not null,
    schema_version integer not null default 1,
    trace_id text not null,
    payload jsonb not null,
    status text not null default 'pending',
    retry_count integer not null default 0,
    next_retry_at timestamptz not null default now(),
    created_at timestamptz not null default now(),
    sent_at timestamptz,
    last_error text);
CREATE INDEX ON event_outbox(status, next_retry_at) WHERE status IN ('pending', 'failed');
