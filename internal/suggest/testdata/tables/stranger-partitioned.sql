-- from: invented, unlike all others
-- want: id=event_uuid,recorded_at topic=? key=stream_id payload=data sent_at=relayed_at created=recorded_at
CREATE TABLE domain_event_log (event_uuid uuid NOT NULL DEFAULT gen_random_uuid(), stream text NOT NULL, stream_id uuid NOT NULL, kind text NOT NULL, data jsonb NOT NULL, meta jsonb NOT NULL DEFAULT '{}', recorded_at timestamptz NOT NULL DEFAULT now(), relayed_at timestamptz, PRIMARY KEY (event_uuid, recorded_at)) PARTITION BY RANGE (recorded_at);
CREATE TABLE domain_event_log_p1 PARTITION OF domain_event_log FOR VALUES FROM ('2020-01-01') TO ('2100-01-01');
INSERT INTO domain_event_log (stream, stream_id, kind, data, meta) SELECT 'cart', gen_random_uuid(), 'cart.checked_out', '{"total": 5}', '{"traceparent":"00-1-2-01","user":"u1"}' FROM generate_series(1,4);
