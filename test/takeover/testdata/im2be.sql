-- The im2be platform's outbox, as its public sources describe it.
CREATE TABLE public.outbox (
    aggregate_id   uuid          NOT NULL,
    event_id       uuid          NOT NULL,
    status         varchar(16)   NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'SENT', 'FAILED', 'ARCHIVED')),
    topic          varchar(249)  NOT NULL,
    payload        bytea         NOT NULL,
    schema_version integer       NOT NULL,
    retries        integer       NOT NULL DEFAULT 0,
    last_error     varchar(1000),
    created_at     timestamptz   NOT NULL,
    sent_at        timestamptz,
    record_version bigint        NOT NULL DEFAULT 0,
    trace_parent   varchar(64),
    trace_state    varchar(512),
    PRIMARY KEY (aggregate_id, event_id)
);
CREATE INDEX outbox_status_created_at ON public.outbox (status, created_at);

CREATE TABLE public.shedlock (
    name       varchar(64)  NOT NULL PRIMARY KEY,
    lock_until timestamp    NOT NULL,
    locked_at  timestamp    NOT NULL,
    locked_by  varchar(255) NOT NULL
);
