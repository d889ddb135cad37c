-- from: faststream-outbox schema.py
-- want: topic=?queue key=- published=delete due=next_attempt_at created=created_at
CREATE TABLE outbox (
    id bigserial PRIMARY KEY,
    queue varchar(255) NOT NULL,
    payload bytea NOT NULL,
    headers jsonb,
    attempts_count bigint NOT NULL,
    deliveries_count bigint NOT NULL,
    created_at timestamptz NOT NULL,
    next_attempt_at timestamptz NOT NULL,
    first_attempt_at timestamptz,
    last_attempt_at timestamptz,
    acquired_at timestamptz,
    acquired_token uuid,
    timer_id varchar(255));
