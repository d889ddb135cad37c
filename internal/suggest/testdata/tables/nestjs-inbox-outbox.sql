-- from: Nestixis/nestjs-inbox-outbox
-- want: refused
CREATE TABLE outbox_transport_event (
    id bigserial PRIMARY KEY,
    event_name varchar NOT NULL,
    event_payload json NOT NULL,
    delived_to_listeners json NOT NULL,
    ready_to_retry_after bigint,
    expire_at bigint NOT NULL,
    inserted_at bigint NOT NULL);
