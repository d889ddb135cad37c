-- from: leonlee/outbox schema/postgresql.sql
-- want: id=event_id topic=? key=aggregate_id column=status pending=0,2 sent=1 failed=3 sent_at=done_at attempts=attempts error=last_error due=available_at created=created_at
CREATE TABLE outbox_event (
    event_id VARCHAR(36) PRIMARY KEY,
    event_type VARCHAR(128) NOT NULL,
    aggregate_type VARCHAR(64),
    aggregate_id VARCHAR(128),
    tenant_id VARCHAR(64),
    payload JSONB NOT NULL,
    headers JSONB,
    status SMALLINT NOT NULL,
    attempts INT NOT NULL DEFAULT 0,
    available_at TIMESTAMPTZ NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    done_at TIMESTAMPTZ,
    last_error TEXT,
    locked_by VARCHAR(128),
    locked_at TIMESTAMPTZ);
