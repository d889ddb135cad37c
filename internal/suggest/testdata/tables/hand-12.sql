-- from: stored public code, index 62301316942: outbox_events with topic and state
-- want: topic=topic key=aggregate_id column=state pending=pending sent=processed sent_at=processed_at attempts=attempts error=last_error due=available_at created=created_at
CREATE TABLE outbox_events (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    aggregate_type varchar(60) NOT NULL,
    aggregate_id uuid NOT NULL,
    topic varchar(100) NOT NULL,
    payload jsonb NOT NULL,
    state varchar(24) NOT NULL DEFAULT 'pending',
    attempts integer NOT NULL DEFAULT 0,
    available_at timestamptz NOT NULL DEFAULT now(),
    processed_at timestamptz,
    last_error text,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT uq_outbox_aggregate_topic UNIQUE(aggregate_id, topic));
INSERT INTO outbox_events (aggregate_type, aggregate_id, topic, payload, state) VALUES
    ('order', '00000000-0000-0000-0000-000000000001', 'orders', '{}', 'pending'),
    ('order', '00000000-0000-0000-0000-000000000001', 'payments', '{}', 'processed');
