-- from: nestarc/outbox
-- want: topic=? key=? column=status pending=PENDING processing=PROCESSING sent=SENT failed=FAILED sent_at=processed_at attempts=retry_count error=last_error created=created_at
CREATE TABLE outbox_events (
    id uuid PRIMARY KEY,
    event_type varchar(255) NOT NULL,
    payload jsonb NOT NULL,
    status varchar(20) NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'PROCESSING', 'SENT', 'FAILED')),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    processed_at timestamptz,
    retry_count int NOT NULL DEFAULT 0,
    max_retries int NOT NULL DEFAULT 5,
    last_error text,
    tenant_id varchar(255));
