-- from: vienhuynhemc/spring spring-for-apache-kafka/consume-event/src/main/resources/db/migration/V1__create_outbox_event_table.sql
-- want: topic=? key=aggregate_id column=status pending=PENDING sent=SENT failed=FAILED sent_at=send_at attempts=retry_count error=error_message due=next_retry_at created=created_at
CREATE TABLE outbox_event (
    id UUID NOT NULL,
    event_type VARCHAR(200) NOT NULL,
    aggregate_id VARCHAR(200) NOT NULL,
    payload JSONB NOT NULL,
    status VARCHAR(20) NOT NULL,
    retry_count INT NOT NULL DEFAULT 0,
    next_retry_at TIMESTAMP NULL,
    sequence_number INT NULL,
    error_message TEXT NULL,
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    send_at TIMESTAMP NULL,
    PRIMARY KEY (id),
    CHECK (status IN ('PENDING', 'SENT', 'FAILED')));
