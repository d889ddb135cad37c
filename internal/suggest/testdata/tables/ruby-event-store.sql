-- from: RailsEventStore/rails_event_store
-- want: refused
CREATE TABLE event_store_outbox (
    id bigserial PRIMARY KEY,
    split_key varchar,
    format varchar NOT NULL,
    payload bytea NOT NULL,
    created_at timestamp NOT NULL,
    enqueued_at timestamp);
