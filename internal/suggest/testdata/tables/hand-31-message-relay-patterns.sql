-- from: bakhoraliev/message-relay-patterns outbox.sql
-- want: topic=topic key=key payload=value column=processed pending=false,null sent=true
CREATE TABLE outbox (
    id SERIAL PRIMARY KEY,
    topic VARCHAR(255) NOT NULL,
    key TEXT,
    value TEXT,
    headers TEXT DEFAULT NULL,
    partition INT DEFAULT NULL,
    processed BOOLEAN DEFAULT FALSE);
