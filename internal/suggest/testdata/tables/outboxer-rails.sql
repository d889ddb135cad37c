-- from: fast-programmer/outboxer
-- want: refused
CREATE TABLE outboxer_messages (
    id bigserial PRIMARY KEY,
    status varchar NOT NULL,
    messageable_type varchar NOT NULL,
    messageable_id varchar NOT NULL,
    lock_version integer NOT NULL,
    updated_at timestamp NOT NULL,
    queued_at timestamp);
