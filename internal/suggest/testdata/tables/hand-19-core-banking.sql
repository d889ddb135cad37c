-- from: ktenman/core-banking src/main/resources/db/migration/V202403252026__create_outbox_message_table.sql
-- want: topic=? key=aggregate_id column=status pending=PENDING sent=?SENT error=error_message created=created_at
CREATE TABLE outbox_message (
    id BIGSERIAL PRIMARY KEY,
    aggregate_type VARCHAR(255) NOT NULL,
    aggregate_id BIGINT NOT NULL,
    event_type VARCHAR(255) NOT NULL,
    payload JSONB NOT NULL,
    status VARCHAR(20) NOT NULL DEFAULT 'PENDING',
    error_message TEXT,
    created_at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP);
