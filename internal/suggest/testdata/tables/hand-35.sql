-- from: stored public code, index: "create table outbox (id bigserial, topic text, msg jsonb, status text" (no key at all)
-- want: refused
CREATE TABLE outbox (
    id bigserial,
    topic text,
    msg jsonb,
    status text,
    created_at timestamp,
    updated_at timestamp);
