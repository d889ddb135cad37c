-- from: made up after hand-written tables of public code: headers as bytes, with rows
-- want: topic=topic key=msg_key payload=body sent_at=sent_at created=created_at
CREATE TABLE frames_outbox (
    id bigserial PRIMARY KEY,
    topic text NOT NULL,
    msg_key bytea,
    body bytea NOT NULL,
    headers bytea,
    created_at timestamptz NOT NULL DEFAULT now(),
    sent_at timestamptz);
INSERT INTO frames_outbox (topic, body, headers) VALUES ('t', 'x', convert_to('{"a": "b"}', 'UTF8'));
