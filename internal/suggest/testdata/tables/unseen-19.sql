-- from: made up after hand-written tables of public code: a first attempt that is one, an id of the event that is unique
-- want: id=audit_event_id topic=? key=? payload=event column=status pending=queued sent=?sent attempts=attempt created=created_at
CREATE TABLE audit_outbox (
    audit_event_id uuid PRIMARY KEY,
    event jsonb NOT NULL,
    status text NOT NULL DEFAULT 'queued',
    attempt integer NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now());
