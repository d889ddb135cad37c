-- from: a hand-written table whose payload was serialized by PHP
-- want: refused
CREATE TABLE outbox (
    id bigserial PRIMARY KEY,
    event_type text NOT NULL,
    payload text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz);
INSERT INTO outbox (event_type, payload) VALUES
    ('placed', 'O:11:"OrderPlaced":1:{s:2:"id";i:1;}');
