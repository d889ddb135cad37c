-- from: stored public code, index 53321216640: outbox with CHECK (status IN ('PENDING', 'SENT', 'FAILED'))
-- want: topic=topic key=key column=status pending=PENDING sent=SENT failed=FAILED sent_at=processed_at created=created_at
CREATE TABLE outbox (
    id BIGSERIAL PRIMARY KEY,
    topic VARCHAR(255) NOT NULL,
    "key" VARCHAR(255),
    payload TEXT NOT NULL,
    status VARCHAR(50) NOT NULL DEFAULT 'PENDING',
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    processed_at TIMESTAMP,
    CONSTRAINT chk_outbox_status CHECK (status IN ('PENDING', 'SENT', 'FAILED')));
