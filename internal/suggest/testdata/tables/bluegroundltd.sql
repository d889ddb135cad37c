-- from: bluegroundltd/transactional-outbox outbox_table_creation.sql
-- want: refused
CREATE TABLE outbox_item (
    id bigserial PRIMARY KEY,
    type text,
    status text,
    payload text,
    group_id text,
    retries bigint,
    next_run timestamp,
    last_execution timestamp,
    rerun_after timestamp,
    delete_after timestamp,
    version numeric,
    created_at timestamp,
    created_by text,
    updated_at timestamp,
    updated_by text);
