-- from: zalando-nakadi/nakadi-producer-spring-boot-starter event_log
-- want: refused
CREATE TABLE event_log (
    id bigserial PRIMARY KEY,
    event_type text NOT NULL,
    event_body_data text NOT NULL,
    flow_id text,
    created timestamptz NOT NULL,
    last_modified timestamptz NOT NULL,
    locked_by text,
    locked_until timestamptz,
    compaction_key text);
