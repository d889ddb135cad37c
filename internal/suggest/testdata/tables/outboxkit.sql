-- from: YakShaveFx/outboxkit docs/postgresql/polling.md
-- want: topic=? key=? published=?none created=created_at
CREATE TABLE outbox_messages (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    type varchar(128) NOT NULL,
    payload bytea NOT NULL,
    created_at timestamp NOT NULL,
    trace_context bytea);
