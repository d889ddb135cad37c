-- from: stored public code, index: Rails CreateJetstreamOutboxEvents (resource_type, resource_id)
-- want: topic=? key=resource_id sent_at=published_at attempts=attempts error=last_error created=created_at
CREATE TABLE jetstream_outbox_events (
    id bigserial PRIMARY KEY,
    resource_type varchar NOT NULL,
    resource_id varchar NOT NULL,
    event_type varchar NOT NULL,
    payload jsonb NOT NULL DEFAULT '{}',
    published_at timestamp(6),
    attempts integer DEFAULT 0,
    last_error text,
    created_at timestamp(6) NOT NULL,
    updated_at timestamp(6) NOT NULL);
