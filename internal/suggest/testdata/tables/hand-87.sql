-- from: stored public code, index: "outbox_events(event_id VARCHAR, exchange, routing_key, payload, trace_id, span_id, published)"
-- want: id=event_id topic=? key=? column=published pending=false sent=true created=created_at
CREATE TABLE outbox_events (
    event_id VARCHAR NOT NULL PRIMARY KEY,
    exchange VARCHAR NOT NULL,
    routing_key VARCHAR NOT NULL,
    payload JSONB NOT NULL,
    trace_id VARCHAR NOT NULL,
    span_id VARCHAR NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    published BOOLEAN NOT NULL DEFAULT FALSE);
