-- from: BookingSync/rails-transactional-outbox
-- want: refused
CREATE TABLE outbox_entries (
    id bigserial PRIMARY KEY,
    resource_class varchar,
    resource_id varchar,
    event_name varchar NOT NULL,
    context varchar NOT NULL,
    processed_at timestamp,
    arguments text,
    changeset text,
    causality_key varchar,
    failed_at timestamp,
    retry_at timestamp,
    created_at timestamp);
