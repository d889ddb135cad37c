-- from: stored public code, index 68973591705: outbox of orders (sequence, event_id, order_id)
-- want: id=sequence topic=topic key=?order_id sent_at=published_at created=created_at
CREATE TABLE outbox (
    sequence BIGSERIAL PRIMARY KEY,
    event_id UUID UNIQUE NOT NULL,
    order_id UUID NOT NULL,
    payload JSONB NOT NULL,
    published_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    topic TEXT NOT NULL DEFAULT 'order-events');
