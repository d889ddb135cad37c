-- from: stored public code, index: "published BOOLEAN NOT NULL DEFAULT false, processed_at" (gen_random_uuid in queries)
-- want: topic=? key=? column=published pending=false sent=true sent_at=processed_at created=created_at
CREATE TABLE outbox (
    id UUID PRIMARY KEY,
    event_type text NOT NULL,
    payload JSONB NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    published BOOLEAN NOT NULL DEFAULT false,
    processed_at TIMESTAMPTZ NULL);
