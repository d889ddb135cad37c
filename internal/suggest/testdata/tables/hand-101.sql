-- from: stored public code, index 71513265768: event_outbox of room messages (subject, traceparent, seq)
-- want: topic=? key=? sent_at=published_at attempts=attempts error=last_error due=available_at
CREATE TABLE event_outbox (
    id UUID PRIMARY KEY,
    event_id UUID NOT NULL UNIQUE,
    message_id UUID NOT NULL UNIQUE,
    subject TEXT NOT NULL CHECK (subject <> ''),
    payload JSONB NOT NULL CHECK (jsonb_typeof(payload) = 'object'),
    traceparent TEXT,
    seq BIGINT,
    attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    available_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
    claimed_at TIMESTAMPTZ,
    published_at TIMESTAMPTZ,
    last_error TEXT);
