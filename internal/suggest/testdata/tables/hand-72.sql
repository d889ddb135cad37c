-- from: stored public code, index: Rails CreateOutboxerEvents (eventable_id, body jsonb)
-- want: topic=? key=eventable_id payload=body published=?none created=created_at
CREATE TABLE outboxer_events (
    id bigserial PRIMARY KEY,
    "order" integer NOT NULL,
    created_at timestamp NOT NULL,
    eventable_id varchar(255) NOT NULL,
    eventable_type varchar(255) NOT NULL,
    type varchar(255) NOT NULL,
    body jsonb);
