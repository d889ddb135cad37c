-- from: Kuper-Tech/sbmt-outbox README
-- want: topic=? key=options column=status pending=0 sent=2 failed=1 sent_at=processed_at attempts=errors_count error=error_log created=created_at
CREATE TABLE my_outbox_items (
    id bigserial PRIMARY KEY,
    uuid uuid NOT NULL,
    event_name varchar,
    event_key varchar NOT NULL,
    bucket integer NOT NULL,
    status integer NOT NULL DEFAULT 0,
    options jsonb,
    payload bytea NOT NULL,
    errors_count integer NOT NULL DEFAULT 0,
    error_log text,
    processed_at timestamp,
    created_at timestamp NOT NULL,
    updated_at timestamp NOT NULL);
