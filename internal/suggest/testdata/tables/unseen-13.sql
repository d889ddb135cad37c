-- from: made up after hand-written tables of public code: a counted sequence as the key of the table, an event id beside
-- want: id=sequence topic=topic key=?order_id sent_at=published_at created=created_at
CREATE TABLE order_out (
    sequence bigserial PRIMARY KEY,
    event_id uuid UNIQUE NOT NULL,
    order_id uuid NOT NULL,
    topic text NOT NULL DEFAULT 'orders',
    payload jsonb NOT NULL,
    published_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now());
