-- from: omaskery/outboxen-gorm
-- want: id=namespace,id topic=?namespace key=key published=delete
CREATE TABLE outbox_entries (
    namespace text,
    id text,
    key bytea,
    payload bytea,
    processor_id text,
    processing_deadline timestamptz,
    PRIMARY KEY (namespace, id));
