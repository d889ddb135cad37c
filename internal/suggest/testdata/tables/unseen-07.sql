-- from: made up after hand-written tables of public code: processed and cancelled as flags, and a time to wait for
-- want: topic=topic key=? column=processed pending=false sent=true due=scheduled_for rows=cancelled created=created_at
CREATE TABLE reminders_outbox (
    id uuid PRIMARY KEY,
    event_id uuid,
    topic varchar(255) NOT NULL,
    payload text NOT NULL,
    processed boolean NOT NULL DEFAULT FALSE,
    cancelled boolean NOT NULL DEFAULT FALSE,
    created_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP,
    scheduled_for timestamptz NOT NULL,
    expires_at timestamptz);
