-- from: stored public code, index 57794421940: transactional_outbox of a flash sale
-- want: id=event_id topic=? key=aggregate_id sent_at=published_at attempts=attempts due=next_attempt_at created=created_at
CREATE TABLE transactional_outbox (
    event_id UUID PRIMARY KEY,
    aggregate_id VARCHAR(64) NOT NULL,
    event_type VARCHAR(64) NOT NULL CHECK (event_type = 'PRODUCT_STOCK_CHANGED'),
    payload JSONB NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP,
    published_at TIMESTAMPTZ NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    next_attempt_at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP);
