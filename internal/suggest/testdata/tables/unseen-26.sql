-- from: made up after hand-written tables of public code: rows for several channels
-- want: topic=? key=?account_id column=status pending=queued processing=sending sent=sent failed=failed created=created_at attempts=attempts rows=? payload=body
CREATE TABLE notification_out (
    id uuid PRIMARY KEY,
    account_id uuid NOT NULL,
    channel text NOT NULL CHECK (channel IN ('email', 'sms', 'push')),
    body text NOT NULL,
    status text NOT NULL DEFAULT 'queued' CHECK (status IN ('queued', 'sending', 'sent', 'failed')),
    attempts int NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now());
