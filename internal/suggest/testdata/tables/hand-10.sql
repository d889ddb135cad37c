-- from: stored public code, index 60316348357: outbox_events of customers (occurred_at)
-- want: topic=? key=aggregate_id published=?none created=occurred_at
CREATE TABLE outbox_events (
    id uuid primary key,
    aggregate_type varchar(100) not null,
    aggregate_id uuid not null,
    event_type varchar(100) not null,
    payload jsonb not null,
    occurred_at timestamptz not null);
