-- from: Shakhaev/user_service src/main/resources/db/changelog/changeset/user_V010__outbox_add.sql
-- want: topic=? key=aggregate_id column=processed pending=false sent=true created=created_at
CREATE TABLE outbox_event (
    id BIGINT PRIMARY KEY,
    aggregate_id BIGINT NOT NULL,
    aggregate_type VARCHAR(255) NOT NULL,
    event_type VARCHAR(255) NOT NULL,
    payload TEXT NOT NULL,
    created_at TIMESTAMP NOT NULL,
    processed BOOLEAN NOT NULL DEFAULT FALSE);
