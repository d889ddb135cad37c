-- from: invented, unlike all others
-- want: topic=? key=? payload=body column=lifecycle pending=READY processing=TAKEN sent=OUT failed=BROKEN created=?at
CREATE TABLE integration_events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), channel text NOT NULL CHECK (channel IN ('kafka','webhook')), event_name text NOT NULL, body jsonb NOT NULL, lifecycle text NOT NULL DEFAULT 'READY' CHECK (lifecycle IN ('READY','TAKEN','OUT','BROKEN')), try_no int NOT NULL DEFAULT 0, at timestamptz NOT NULL DEFAULT now());
CREATE INDEX kafka_ready ON integration_events (at) WHERE lifecycle = 'READY' AND channel = 'kafka';
INSERT INTO integration_events (channel, event_name, body) VALUES ('kafka','user.created','{"userId":"u1"}'),('webhook','user.created','{"userId":"u2"}');
