-- from: stored public code, index: goose outbox_status ('CREATED', 'IN_PROGRESS', 'SUCCESS', 'ABANDONED'), idempotency_key
-- want: id=idempotency_key topic=? key=? payload=data column=status pending=CREATED processing=IN_PROGRESS sent=SUCCESS failed=ABANDONED attempts=attempts created=created_at
CREATE TYPE outbox_status as ENUM ('CREATED', 'IN_PROGRESS', 'SUCCESS', 'ABANDONED');
CREATE TABLE outbox (
    idempotency_key TEXT PRIMARY KEY,
    data JSONB NOT NULL,
    status outbox_status NOT NULL,
    kind INT NOT NULL,
    attempts INT NOT NULL,
    created_at TIMESTAMP DEFAULT now() NOT NULL,
    updated_at TIMESTAMP DEFAULT now() NOT NULL);
