-- from: the table of profile published-at
-- want: topic=? key=aggregate_id sent_at=published_at attempts=attempts error=last_error created=created_at
CREATE TABLE outbox_events (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    aggregate_type varchar(100) NOT NULL,
    aggregate_id varchar(100) NOT NULL,
    event_type varchar(100) NOT NULL,
    payload jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz,
    attempts integer NOT NULL DEFAULT 0,
    last_error text);
INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload) VALUES
    ('order', '1', 'OrderPlaced', '{"orderId": 1}');
