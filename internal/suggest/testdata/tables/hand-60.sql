-- from: stored public code, index: Drizzle outbox (conversation_id, processed, processed_at, retry_count, error)
-- want: topic=? key=? column=processed pending=false sent=true sent_at=processed_at attempts=retry_count error=error created=created_at
CREATE TABLE outbox (
    id bigserial PRIMARY KEY,
    type text NOT NULL,
    conversation_id uuid NOT NULL,
    payload jsonb NOT NULL,
    processed boolean DEFAULT false NOT NULL,
    processed_at timestamptz,
    retry_count integer DEFAULT 0 NOT NULL,
    error text,
    created_at timestamptz DEFAULT now() NOT NULL);
