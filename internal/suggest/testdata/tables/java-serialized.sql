-- from: a hand-written table whose payload was serialized by Java
-- want: refused
CREATE TABLE outbox (
    id bigserial PRIMARY KEY,
    event_type text NOT NULL,
    payload bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz);
INSERT INTO outbox (event_type, payload) VALUES
    ('placed', '\xaced000573720004');
