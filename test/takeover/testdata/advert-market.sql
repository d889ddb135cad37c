-- advert-market's outbox, as its public sources describe it.
CREATE TABLE public.notification_outbox (
    id              bigserial    PRIMARY KEY,
    deal_id         uuid,
    idempotency_key varchar(200) NOT NULL UNIQUE,
    topic           varchar(200) NOT NULL,
    partition_key   varchar(200),
    payload         jsonb        NOT NULL,
    status          varchar(20)  NOT NULL DEFAULT 'PENDING',
    retry_count     int          NOT NULL DEFAULT 0,
    version         int          NOT NULL DEFAULT 0,
    created_at      timestamptz  NOT NULL DEFAULT now(),
    processed_at    timestamptz
);
CREATE INDEX idx_outbox_pending ON public.notification_outbox (created_at) WHERE status = 'PENDING';
CREATE INDEX idx_outbox_processing ON public.notification_outbox (status, created_at) WHERE status = 'PROCESSING';
