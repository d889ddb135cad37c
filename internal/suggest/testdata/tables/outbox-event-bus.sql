-- from: dunika/outbox-event-bus
-- want: topic=? key=id payload=?object column=status pending=created processing=active sent=completed failed=failed sent_at=completed_on attempts=retry_count error=last_error due=next_retry_at created=created_on published=?status
CREATE TYPE outbox_status AS ENUM ('created', 'active', 'completed', 'failed');
CREATE TABLE outbox_events (
    id uuid PRIMARY KEY,
    type text NOT NULL,
    payload jsonb NOT NULL,
    occurred_at timestamptz NOT NULL,
    status outbox_status NOT NULL DEFAULT 'created',
    retry_count int NOT NULL DEFAULT 0,
    last_error text,
    next_retry_at timestamptz,
    created_on timestamptz NOT NULL DEFAULT now(),
    started_on timestamptz,
    completed_on timestamptz,
    keep_alive timestamptz,
    expire_in_seconds int NOT NULL DEFAULT 300);
